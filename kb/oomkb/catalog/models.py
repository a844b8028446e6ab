"""Models: their ``config.json`` shapes and parameter counts, found by the names people write.

The data lie in ``data/models/*.json``, one file per family. Everything works offline; a person adds models of
their own with :func:`add_model`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from oomkb.catalog import model_data, model_scan, model_text
from oomkb.catalog.model_data import ModelEntry
from oomkb.catalog.model_scan import ModelMention
from oomkb.dataclass import dataclass
from oomkb.kept import lazy
from oomkb.memory.names import text_config

__all__ = [
    "ModelEntry",
    "ModelMention",
    "add_model",
    "all_models",
    "context_length",
    "find",
    "find_all",
    "reload",
    "stored_quant",
]
_STORED: Final = {"fp8": "fp8", "awq": "awq-int4", "gptq": "gptq-int4", "mxfp4": "mxfp4", "fbgemm_fp8": "fp8"}
_LENGTHS: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions")
_SCALED_INSIDE: Final = frozenset({"llama3", "longrope", "su", "mrope", "default"})
"""Rotary scalings whose longer context ``max_position_embeddings`` counts already."""


@dataclass(frozen=True, slots=True)
class _Catalogue:
    entries: tuple[ModelEntry, ...]
    by_name: dict[str, ModelEntry]
    table: model_text.Table


@cache
def _catalogue() -> _Catalogue:
    shipped = model_data.families()
    own = model_data.user_models(model_data.home())
    entries = (*own, *(entry for family in shipped for entry in family.models))
    by_name: dict[str, ModelEntry] = {}
    for entry in entries:
        by_name.setdefault(_key(entry.name), entry)
    for entry in entries:
        by_name.setdefault(_key(entry.name.rpartition("/")[2]), entry)
    return _Catalogue(entries, by_name, model_text.build_table(shipped))


def reload() -> None:
    """Forget what was read, so that files added since are seen."""
    _catalogue.cache_clear()
    find.cache_clear()


def all_models() -> tuple[ModelEntry, ...]:
    """Every model: a person's own first, then the shipped ones in the order of the files."""
    return _catalogue().entries


@lru_cache(maxsize=4096)
def find(name: str) -> ModelEntry | None:
    """The model of that name, or ``None``.

    :param name: a hub id, a path that contains one, or what people write (``"llama3 8b"``). Words such as
        ``instruct`` map to the base shape; ``awq``, ``gptq`` and ``4bit`` set ``quant_hint``.
    """
    catalogue = _catalogue()
    text = name.strip()[-400:]
    found = catalogue.by_name.get(_key(text))
    parts = [p for p in re.split(r"[\\/]", text) if p] if found is None else []
    for place, part in enumerate(reversed(parts)):
        if place and not re.search(r"[0-9]", part):
            continue  # who publishes it ("arcee-ai"), not what it is
        found = catalogue.by_name.get(_key(part)) or model_text.interpret(part, catalogue.table)[0]
        if found is not None:
            break
    if found is None:
        return None
    hint = model_text.quant_hint(text)
    return replace(found, quant_hint=hint) if hint else found


def length_in_name(name: str) -> int | None:
    """Tokens of context that a model's name ends with: ``chatglm3-6b-128k``, ``Qwen2.5-7B-Instruct-1M``."""
    found = _LENGTH_IN_NAME.search(name.rstrip("/"))
    return int(found[1] or 1024) << 10 if found is not None else None


_LENGTH_IN_NAME: Final = lazy(r"[-_](?:([1-9][0-9]{0,3})k|1m)(?:[-_](?:instruct|chat|base|hf|it))?\Z", re.I)


def context_length(config: Mapping[str, Any]) -> int | None:
    """Tokens of the model's own context, by its ``config.json``: what an engine takes where nobody states a length.

    As vLLM derives it (0.11 ``config/model.py``, ``_get_and_verify_max_len``): rotary scaling multiplies the length,
    where it is not counted in it.
    """
    text = text_config(config)
    length = next((n for key in _LENGTHS if isinstance(n := text.get(key), int) and n > 0), None)
    scaling = text.get("rope_scaling")
    if length is None or not isinstance(scaling, Mapping):
        return length
    kind, factor = scaling.get("rope_type") or scaling.get("type"), scaling.get("factor")
    if kind in _SCALED_INSIDE or not isinstance(factor, int | float) or factor < 1:
        return length
    original = scaling.get("original_max_position_embeddings") if kind == "yarn" else None
    return int((original if isinstance(original, int) else length) * factor)


def stored_quant(config: Mapping[str, Any]) -> str | None:
    """How a checkpoint stores its weights, by the ``quantization_config`` of its ``config.json``.

    :returns: a job's word for it; ``None`` for 16 bits, and for what cannot be told.
    """
    stored = config.get("quantization_config")
    if not isinstance(stored, Mapping):
        return None
    method = str(stored.get("quant_method", "")).lower()
    if method == "gptq" and stored.get("bits") == 8:
        return "gptq-int8"
    if method == "bitsandbytes":
        return "int8" if stored.get("load_in_8bit") else "nf4"
    if method == "modelopt":
        return {"NVFP4": "nvfp4", "FP8": "fp8"}.get(str(stored.get("quant_algo", "")).upper())
    if method != "compressed-tensors":
        return _STORED.get(method)
    groups = stored.get("config_groups")
    each = [g.get("weights") for g in groups.values() if isinstance(g, Mapping)] if isinstance(groups, Mapping) else []
    first = next((w for w in each if isinstance(w, Mapping)), {})
    four = first.get("num_bits") == 4
    routed = any(config.get(n) for n in ("n_routed_experts", "num_experts", "num_local_experts"))
    if four and first.get("type") == "float":
        return "nvfp4" if first.get("group_size") == 16 else "mxfp4"
    if first.get("num_bits") == 8:
        return "fp8" if first.get("type") == "float" else "int8"
    return ("int4-experts" if routed else "gptq-int4") if four else None


def find_all(text: str) -> list[ModelMention]:
    """Every mention of a model in prose or a log, in order; ``entry`` is ``None`` for one the catalogue lacks."""
    return model_scan.scan(text, _catalogue().table, find)


def add_model(config_path: str | Path, name: str | None = None) -> ModelEntry:
    """Copy a ``config.json`` into the person's own models and return its entry.

    :param name: what to call it; else ``_name_or_path`` in the file, else the folder's name.
    :raises CatalogError: when the file cannot be read or describes no model.
    """
    path = Path(config_path)
    path = path / "config.json" if path.is_dir() else path
    config = model_data.read_config(path)
    stem = path.parent.name if path.name == "config.json" else path.stem
    called = name or str(config.get("_name_or_path") or stem or "model")
    entry = ModelEntry.from_config(config, called, source=str(path))
    target = model_data.home() / (re.sub(r"[^A-Za-z0-9._-]+", "--", called).strip(".-") + ".json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**config, "name": called, "_name_or_path": called}, indent=1), encoding="utf-8")
    reload()
    return entry


def _key(name: str) -> str:
    return name.strip().strip("/").lower().replace("_", "-").replace(" ", "-")
