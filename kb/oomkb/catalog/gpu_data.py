"""Reading ``data/gpus/*.json`` into :class:`~oomkb.memory.device.Device`, lazily and once.

A file holds the cards of one generation: ``vendor``, ``generation``, ``defaults`` for its entries, ``sources``
(short key → address) and ``gpus``. An entry:

``name``; ``match``: how it is written, a core token followed by the words it needs (``"3090 ti"``);
``words``: other words that select it (``sxm4``); ``gb``: the size on the box;
``gib``: what the driver reports, first the usual figure, then others seen; absent: derived;
``derived``: true where ``gib`` is no figure of one report that can be linked;
``gb_s``: memory bandwidth; ``cc``: compute capability; ``tflops``: dense rates; ``link``, ``link_gb_s``
(both directions together, as data sheets count), ``host_gb_s`` (one direction); ``lacks``; ``inline_ecc``,
``unified`` and ``share``: how a capacity is derived; ``family``: a line of machines with one of several chips, which
a text names a card by only together with a size, and where it names no chip;
``source``: ``{"specs": key, "capacity": key}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.kept import lazy
from oomkb.memory.device import Device
from oomkb.units import GIB

DATA: Final = Path(__file__).parent / "data" / "gpus"
_INLINE_ECC_SHARE: Final = 15 / 16
"""GDDR6 with ECC on keeps one sixteenth for the check bits: 24 GB L4 and A10 report 22.0-22.5 GiB."""
_SIZE_IN_NAME: Final = lazy(r"[- ][0-9]{1,3}GB$")
_DERIVED_SPREAD: Final = 0.015
"""How far drivers' totals lie from a derived one: the measured cards of the catalogue differ by at most that."""
_DRIVER_SHARE: Final = 0.985
"""What is left after the driver's own reserve: 23.64 of 24, 31.74 of 32, 79.15 of 80 (0.985 to 0.992)."""


def words(text: str) -> frozenset[str]:
    """The words of ``text``, which blanks keep apart."""
    return frozenset(text.split())


def lowered(text: str) -> str:
    """``text`` in lower case, character for character (``İ`` is the one letter that would become two)."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("İ", "i").lower()


def occurrences(low: str, word: re.Pattern[str], known: Callable[[str], bool]) -> list[tuple[int, int, str]]:
    """Where the words that ``known`` accepts stand in ``low``, in order of place: most texts hold none."""
    accepted = {found for found in set(word.findall(low)) if known(found)}
    return [(m.start(), m.end(), m[0]) for m in word.finditer(low) if m[0] in accepted] if accepted else []


@dataclass(frozen=True, slots=True)
class Entry:
    """One card: the device, and how its name is written."""

    device: Device
    keys: tuple[tuple[str, frozenset[str]], ...]
    """(core token, words it needs beside it)."""
    words: frozenset[str]
    sizes_gb: tuple[int, ...]
    """Sizes on the box; several where one chip is sold with several (Apple)."""
    file: str
    raw: Mapping[str, Any]


def derived_capacity_bytes(
    nominal_gb: float, *, inline_ecc: bool = False, unified: bool = False, share: float = _DRIVER_SHARE
) -> int:
    """The total a driver reports for a card sold as ``nominal_gb``, where no report was found.

    Discrete cards: ``share`` of it, 98.5 % for want of better (15/16 of that with ECC inside GDDR); AMD's driver
    keeps next to nothing (23.98 of 24, 287.98 of 288), so its files say 99.9 %. Unified memory under Metal: two
    thirds up to 32 GB, three quarters above (``recommendedMaxWorkingSize``).
    """
    if unified:
        return round(nominal_gb * GIB * (2 / 3 if nominal_gb <= 32 else 3 / 4))
    return round(nominal_gb * GIB * share * (_INLINE_ECC_SHARE if inline_ecc else 1))


def hardware_limits(capability: tuple[int, int]) -> frozenset[str]:
    """What an NVIDIA compute capability rules out.

    bf16 and FlashAttention-2 need 8.0 (flash-attention's README), FlashAttention-3 needs 9.0 and no other,
    fp8 needs 8.9, fp4 10.0, int8 tensor cores 7.2, Triton (so torch.compile) 7.0, fp16 tensor cores 7.0.
    """
    needs = {
        "bf16": capability >= (8, 0),
        "flash2": capability >= (8, 0),
        "flash3": capability[0] == 9,
        "fp8": capability >= (8, 9),
        "fp4": capability >= (10, 0),
        "tf32": capability >= (8, 0),
        "int8-tensor": capability >= (7, 2),
        "fp16-tensor": capability >= (7, 0),
        "triton": capability >= (7, 0),
    }
    return frozenset(name for name, there in needs.items() if not there)


def _device(raw: Mapping[str, Any], head: Mapping[str, Any], nominal_gb: float, suffix: str = "") -> Device:
    seen = [round(g * GIB) for g in raw.get("gib", ())] if not suffix else []
    capacity = (
        seen[0]
        if seen
        else derived_capacity_bytes(
            nominal_gb,
            inline_ecc=bool(raw.get("inline_ecc")),
            unified=bool(raw.get("unified")),
            share=raw.get("share", _DRIVER_SHARE),
        )
    )
    capability = tuple(raw["cc"]) if raw.get("cc") else None
    limits = frozenset(raw.get("lacks", ())) | (hardware_limits(capability) if capability else frozenset())
    sources = raw.get("source", {})
    known = head.get("sources", {})
    return Device(
        name=raw["name"] + suffix,
        vendor=head["vendor"],
        generation=raw.get("generation", head["generation"]),
        capacity_bytes=capacity,
        bandwidth_bytes_per_s=raw["gb_s"] * 1e9 if raw.get("gb_s") else None,
        compute_capability=capability,
        tflops=dict(raw.get("tflops", {})),
        link=raw.get("link"),
        link_bytes_per_s=raw["link_gb_s"] * 1e9 if raw.get("link_gb_s") else None,
        host_link_bytes_per_s=raw["host_gb_s"] * 1e9 if raw.get("host_gb_s") else None,
        lacks=limits,
        source="; ".join(dict.fromkeys(known.get(key, key) for key in sources.values())),
        nominal_bytes=round(nominal_gb * GIB),
        observed_bytes=tuple(seen[1:]),
        capacity_derived=bool(raw.get("derived", not seen)),
        capacity_interval_bytes=_interval(raw, capacity, seen),
    )


def _interval(raw: Mapping[str, Any], capacity: int, seen: list[int]) -> tuple[int, int]:
    """Lowest and highest total that a driver may report: what was seen, or what a rule leaves open."""
    if seen and not raw.get("derived"):
        return min(seen), max(seen)
    totals = seen or [capacity]
    return round(min(totals) * (1 - _DERIVED_SPREAD)), round(max(totals) * (1 + _DERIVED_SPREAD))


def _entry(raw: Mapping[str, Any], head: Mapping[str, Any], file: str) -> Entry:
    full = {**head.get("defaults", {}), **raw}
    sizes = full["gb"] if isinstance(full["gb"], list) else [full["gb"]]
    keys = tuple((parts[0], frozenset(parts[1:])) for parts in (m.split() for m in full["match"]))
    return Entry(
        device=_device(full, head, sizes[0]),
        keys=keys,
        words=frozenset(full.get("words", ())),
        sizes_gb=tuple(sizes),
        file=file,
        raw={**full, "_head": head},
    )


def with_size(entry: Entry, size_gb: int) -> Device:
    """The device of an entry sold with several sizes, for one of them."""
    if size_gb == entry.sizes_gb[0]:
        return entry.device
    return _device(entry.raw, entry.raw["_head"], size_gb, f" ({size_gb} GB)")


def of_stated_size(entry: Entry, size_gb: int) -> Device:
    """A variant that the catalogue does not have, of the stated size.

    Only what holds for every card of the name is kept: neither bandwidth nor rates are taken from a neighbour.
    """
    return replace(
        _device(entry.raw, entry.raw["_head"], size_gb, f" ({size_gb} GB)"),
        name=f"{_SIZE_IN_NAME.sub('', entry.device.name)} ({size_gb} GB)",
        bandwidth_bytes_per_s=None,
        tflops={},
        link=None,
        link_bytes_per_s=None,
    )


@cache
def entries() -> tuple[Entry, ...]:
    """Every entry, in the order of the file names and within them."""
    found: list[Entry] = []
    for path in sorted(DATA.glob("*.json")):
        head = json.loads(path.read_text(encoding="utf-8"))
        found.extend(_entry(raw, head, path.name) for raw in head["gpus"])
    return tuple(found)
