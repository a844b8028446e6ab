"""Sizes: bytes inside, GiB at the edges."""

from __future__ import annotations

import re
from typing import Final

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
_SIZE: Final = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,12})?)\s*([A-Za-z]{0,5})\s*\Z")


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
