"""Faults of the shipped catalogues, and what of them is unverified: ``python bench/lint_catalog.py [--names]``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from oomkb.catalog import gpu_data, gpus, model_data, models
from oomkb.catalog.model_data import ModelEntry
from oomkb.catalog.model_text import size_in_billions
from oomkb.dataclass import dataclass
from oomkb.memory.device import Device

_RATES = frozenset({"fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"})
_NAME_RATIO = (0.85, 1.85)
"""Parameters by the size in the name: names round down, leave out embeddings or a vision tower (Falcon3-1B 1.67)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: ``where`` is file and entry."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Unverified:
    """Entries whose figure nobody published where we could read it: sound as far as we know, and marked."""

    devices: tuple[str, ...]
    """Capacity without a report that can be linked; the entry says ``derived`` and the device has an interval."""
    models: tuple[str, ...]
    """Parameters counted from the config alone."""

    def __str__(self) -> str:
        return f"{len(self.devices)} capacities of GPUs and {len(self.models)} parameter counts of models unverified"


def unverified() -> Unverified:
    """The entries of the shipped catalogues that still need a source of their own."""
    return Unverified(
        tuple(e.device.name for e in gpu_data.entries() if e.raw.get("derived")),
        tuple(m.name for family in model_data.families() for m in family.models if "counted " in m.source),
    )


def lint_catalog() -> list[Problem]:
    """All problems of the shipped catalogues; empty when they are sound."""
    return [*lint_devices(gpu_data.entries()), *lint_models(model_data.families())]


def lint_devices(entries: tuple[gpu_data.Entry, ...]) -> list[Problem]:
    """Problems of GPU entries."""
    found: list[Problem] = []
    keys: dict[tuple[str, frozenset[str], tuple[int, ...], frozenset[str]], str] = {}
    names: set[str] = set()
    for entry in entries:
        where = f"{entry.file}: {entry.device.name}"
        found += [Problem(where, message) for message in _device_faults(entry.device, entry)]
        if entry.device.name in names:
            found.append(Problem(where, "the name stands twice"))
        names.add(entry.device.name)
        for core, needs in entry.keys:
            key = (core, needs, entry.sizes_gb, entry.words)
            if key in keys:
                found.append(Problem(where, f"written like {keys[key]}: {core!r} with {sorted(needs)}"))
            keys[key] = entry.device.name
        seen = gpus.find(entry.device.name)
        if seen is None or seen.name != entry.device.name:
            found.append(Problem(where, f"its own name finds {seen.name if seen else 'nothing'}"))
    return found


def _device_faults(device: Device, entry: gpu_data.Entry) -> Iterator[str]:
    if not device.source or not _address(device.source):
        yield "no source"
    for total in (device.capacity_bytes, *device.observed_bytes):
        if device.nominal_bytes is not None and total > device.nominal_bytes:
            yield f"a reported total of {total} bytes is above the size on the box"
        if device.nominal_bytes is not None and total < 0.45 * device.nominal_bytes:
            yield f"a reported total of {total} bytes is less than half of the size on the box"
    if device.vendor == "nvidia" and device.compute_capability is None:
        yield "no compute capability"
    for dtype, rate in device.tflops.items():
        if dtype not in _RATES or rate <= 0:
            yield f"rate {dtype}={rate} is none"
    if "bf16" in device.lacks and device.tflops.get("bf16"):
        yield "has a bf16 rate and lacks bf16"
    if not entry.keys:
        yield "nothing finds it: no match"


def lint_models(families: tuple[model_data.Family, ...]) -> list[Problem]:
    """Problems of model entries."""
    found: list[Problem] = []
    names: set[str] = set()
    keys: dict[str, str] = {}
    for family in families:
        for entry in family.models:
            where = f"{family.file}: {entry.name}"
            found += [Problem(where, message) for message in _model_faults(entry)]
            if entry.name.lower() in names:
                found.append(Problem(where, "the name stands twice"))
            names.add(entry.name.lower())
            for line in entry.aliases:
                if line in keys:
                    found.append(Problem(where, f"{line!r} also finds {keys[line]}"))
                keys[line] = entry.name
                seen = models.find(line.replace("?", ""))
                if seen is None or seen.name != entry.name:
                    found.append(Problem(where, f"{line!r} finds {seen.name if seen else 'nothing'}"))
            seen = models.find(entry.name)
            if seen is None or seen.name != entry.name:
                found.append(Problem(where, f"its own name finds {seen.name if seen else 'nothing'}"))
    return found


def _model_faults(entry: ModelEntry) -> Iterator[str]:
    if not entry.source or not _address(entry.source):
        yield "no source"
    page = re.match(r"https://huggingface\.co/([^/; ]+)", entry.source)
    if page and page[1].lower() not in ("docs", entry.name.partition("/")[0].lower()):
        yield f"its source is the page of {page[1]}"
    if not entry.config.get("model_type"):
        yield "no model_type"
    if not entry.params or entry.params <= 0:
        yield "no parameter count"
    text = _text(entry.config)
    heads = text.get("num_attention_heads")
    kv = text.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(kv, int) and (kv <= 0 or heads % kv):
        yield f"{heads} heads cannot share {kv} key-value heads"
    hidden = text.get("hidden_size")
    latent = "head_dim" in text or "kv_lora_rank" in text
    if isinstance(heads, int) and isinstance(hidden, int) and not latent and hidden % heads:
        yield f"hidden size {hidden} does not divide among {heads} heads, and head_dim is not given"
    layers, kinds = text.get("num_hidden_layers"), text.get("layer_types")
    if isinstance(kinds, list) and len(kinds) != layers:
        yield f"{len(kinds)} layer types for {layers} layers"
    stated = _stated_size(entry)
    if entry.params and stated and not _NAME_RATIO[0] <= entry.params / 1e9 / stated <= _NAME_RATIO[1]:
        yield f"{entry.params / 1e9:.2f} billion parameters, but called {stated:g}b"


def _address(source: str) -> bool:
    parts = source.split("; ")
    return all(p.startswith("https://") or p.startswith("counted ") for p in parts) and "/search?" not in source


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("text_config", "llm_config"):
        if key in config:
            inner: Mapping[str, Any] = config[key]
            return inner
    return config


def _stated_size(entry: ModelEntry) -> float | None:
    """The size in the hub id, where it counts every parameter."""
    if any(word in entry.name for word in ("-17B-", "A13B", "A2.7B", "8x", "-E2B", "-E4B", "OLMoE")):
        return None  # named by active or effective parameters
    parts = entry.name.rpartition("/")[2].lower().replace("_", ".").split("-")
    return next((size for part in parts if (size := size_in_billions(part)) is not None), None)


if __name__ == "__main__":
    problems = lint_catalog()
    for problem in problems:
        print(problem)
    left = unverified()
    print(left)
    if "--names" in sys.argv:
        print("\n".join(("GPUs:", *left.devices, "models:", *left.models)))
    sys.exit(1 if problems else 0)
