"""Sizes: bytes inside, GiB at the edges; parameters in billions, as a model's name states them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from oomkb.kept import compiled

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
# Decimal prefixes are kept apart from binary ones: lit-gpt prints decimal GB, PyTorch binary GiB.
_UNITS: Final[dict[str, int]] = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": TIB,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
}
_SIZE: Final = compiled(r"\s*([0-9]{1,20}(?:\.[0-9]{1,12})?)\s*([A-Za-z]{0,5})\s*\Z")
_NAMED_SIZES: Final = tuple(
    compiled(pattern, re.ASCII)
    for pattern in (
        r"(?<![\d.])(?<![-_./ ][aA])(?:(?<=[-/ ])(?P<split>\d_\d)(?=[bB](?![A-Za-z0-9]))"
        r"|(?<=[a-z]\d_\d_)(?P<behind>\d(?:_\d)?)(?=[bB](?![A-Za-z0-9]))"
        r"|(?P<plain>\d{1,4}(?:[.p]\d{1,3})?) ?[bB](?:(?=[-_]?[aA]\d)|(?![A-Za-z0-9]))"
        r"|(?P<short>\d[bB]\d)(?![A-Za-z0-9]))",
        r"(?<![A-Za-z0-9.])(?P<thousands>\d{1,2}(?:\.\d)?)T(?=[-_]?[aA]\d)",
        r"(?<![\d.])(?P<millions>\d{2,4})[mM](?![A-Za-z0-9])",
    )
)
_EXPERTS: Final = compiled(r"(\d{1,3})[xX](\d{1,4}(?:\.\d)?)[bB]", re.ASCII)
_SHARED_BY_EXPERTS: Final = 0.83
"""What is left of the product in ``8x7B``: experts share all but the feed-forward layers (Mixtral: 46.7 of 56)."""


def parse_size_bytes(text: str, *, decimal: bool = True) -> int:
    """Read ``"4.64 GiB"``, ``"512M"`` or ``"1024"`` as bytes.

    :param decimal: whether ``GB`` means 10**9 (else 2**30, as drivers and many logs use it).
    :raises ValueError: when the text is not a number with a known unit.
    """
    match = _SIZE.match(text)
    unit = match[2].lower() if match else ""
    if match is None or (unit and unit not in _UNITS):
        raise ValueError(f"{text!r} is not a size; write one such as '4.64 GiB' or '512 MiB'")
    if not decimal and unit in ("kb", "mb", "gb", "tb"):
        unit = unit[0] + "ib"
    return round(float(match[1]) * _UNITS.get(unit, 1))


def to_gib(size_bytes: float) -> float:
    """Bytes as GiB (2**30)."""
    return size_bytes / GIB


def format_gib(size_bytes: float) -> str:
    """Bytes as people read them in a memory report: two decimals of GiB, or MiB below 0.1 GiB."""
    if abs(size_bytes) < 0.0995 * GIB:
        return f"{size_bytes / MIB:.0f} MiB"
    return f"{size_bytes / GIB:.2f} GiB"


def billions(name: str) -> float | None:
    """Parameters in billions that a name states: ``30B-A3B`` → 30, ``3-1_7B`` → 1.7, ``2_5_1b`` → 1, ``0p6B`` → 0.6.

    ``None`` for one without a size, and for experts (``8x7B``), of which neither number is the model's.
    """
    return _billions(name[:300])


@lru_cache(maxsize=1024)
def _billions(name: str) -> float | None:
    if of_experts(name):
        return None
    found = next((f for pattern in _NAMED_SIZES if (f := pattern.search(name)) is not None), None)
    if found is None or found.lastgroup is None:
        return None
    value = float(re.sub("[_pbB]", ".", found[found.lastgroup]))
    value *= {"thousands": 1000.0, "millions": 0.001}.get(found.lastgroup, 1.0)
    return value if 0 < value <= 4000 else None


def of_experts(name: str) -> bool:
    """Whether a name states experts, ``8x7B``: as telling as a size."""
    return _EXPERTS.search(name[:300]) is not None


def billions_with_experts(name: str) -> float | None:
    """As :func:`billions`; experts by what such models hold of the product."""
    found = _EXPERTS.search(name[:300])
    return billions(name) if found is None else round(_SHARED_BY_EXPERTS * int(found[1]) * float(found[2]), 1)
