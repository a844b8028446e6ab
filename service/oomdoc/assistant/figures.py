"""Figures of a sentence: numbers with their units, and whether one follows from others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

from oomkb.dataclass import dataclass

_NUMBER: Final = re.compile(
    r"(?<![A-Za-z_\d.])(?P<n>(?:\d{1,3}(?:,\d{3}){1,8}(?!\d)|\d{1,30})(?:\.\d{1,30})?)(?:e[+-]?\d{1,3})?"
    r"(?:[\s-]?(?P<unit>bits?(?![A-Za-z])|[KMGTP]i?B(?:ytes?)?|[KMGTP]i?b(?:it|ytes?)?|gi(?:ga|bi)bytes?|me(?:ga|bi)bytes?|bytes?|%|per\s?cent|字节|百分点|位(?![数于置])"
    r"|[GMkK](?![A-Za-z])|[万亿]))?",
    re.I,
)
_UNIT_BYTES: Final = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40, "p": 2.0**50}
_TIMES: Final = {"万": 1e4, "亿": 1e8}
BYTES: Final = ("bytes", "byte", "字节")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a sentence; ``step`` is half of its last digit. Sizes are in GiB."""

    kind: str
    value: float
    step: float

    @classmethod
    def of(cls, value: float, unit: str, decimals: int) -> Figure:
        """A number as it is written, with its unit in lower case and its decimals."""
        kind, scaled = kind_of(value, unit)
        return cls(kind, scaled, 0.5 * 10.0**-decimals * (scaled / value if value else 1.0))

    def is_near(self, value: float, more: float = 0.0) -> bool:
        """Whether it is a value within what its digits leave open, and ``more``."""
        return abs(self.value - value) <= self.step + more + 1e-9

    def follows(self, operands: Sequence[Figure]) -> bool:
        """Whether it is worked out from one or two of the operands, as exactly as their digits allow."""
        if self.kind == "percent" and any(
            o.kind == "percent" and self.is_near(100 - o.value, o.step) for o in operands
        ):
            return True
        pairs = [(a, b) for a, b in permutations(operands, 2) if a.value > 0 and b.value > 0]
        return any(self._scales(a, b) if a.kind != b.kind else self._follows(a, b) for a, b in pairs)

    def _scales(self, size: Figure, count: Figure) -> bool:
        """Whether it is a size so many times, or a part of it."""
        if (self.kind, size.kind, count.kind) != ("size", "size", "number"):
            return False
        more, less = size.value * count.value, size.value / count.value
        return self.is_near(more, size.step * count.value) or self.is_near(less, size.step / count.value)

    def _follows(self, a: Figure, b: Figure) -> bool:
        ratio = a.value / b.value
        slack = ratio * (a.step / a.value + b.step / b.value)
        if self.kind == a.kind:
            sums = self.is_near(a.value + b.value, a.step + b.step) or self.is_near(a.value - b.value, a.step + b.step)
            if sums or self.kind != "number":
                return sums
            return self.is_near(a.value * b.value) or self.is_near(ratio, slack)
        if self.kind == "percent":
            return self.is_near(100 * ratio, 100 * slack) or self.is_near(100 * abs(1 - ratio), 100 * slack)
        return self.kind == "number" and a.kind == "size" and self.is_near(ratio, slack)


def numbers_in(text: str) -> Iterator[tuple[float, str, int]]:
    """Each number with its unit in lower case and its decimals."""
    for match in _NUMBER.finditer(text):
        digits = match["n"].rstrip(",").replace(",", "")
        unit = (match["unit"] or "").lower().replace(" ", "")
        yield float(digits), unit, len(digits.partition(".")[2])


def kind_of(value: float, unit: str) -> tuple[str, float]:
    """``size`` in GiB, ``percent``, ``bits`` or ``number``."""
    if unit in ("bit", "bits", "位"):
        return "bits", value
    if not unit or unit == "k":
        return "number", value
    if unit in _TIMES:
        return "number", value * _TIMES[unit]
    if unit in ("%", "percent", "百分点"):
        return "percent", value
    scale = _UNIT_BYTES.get(unit[0], 1.0) if unit not in BYTES else 1.0
    if unit.endswith("bit"):
        scale /= 8
    return "size", value * scale / 2.0**30
