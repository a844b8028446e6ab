"""Linear forms: bytes by unit, such as ``{"T*h": 4.0}`` for four bytes per token and hidden element.

While a step is played a form is one whole number, a lane of bits for each unit: adding and taking away is one addition,
and whether one form reaches another everywhere one subtraction. :class:`Units` turns units into numbers:
bytes, bytes per token, bytes per token and length.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final

Form = Mapping[str, float]
Packed = int
Triple = tuple[float, float, float]
_LANE_BITS: Final = 32
_PARTS: Final = 64
"""Parts of a byte that a lane counts: sizes of elements are whole multiples of them."""
_TOP: Final = 1 << (_LANE_BITS - 1)


def plus(a: Form, b: Form) -> dict[str, float]:
    """Both together, the units of ``a`` first."""
    out = dict(a)
    for unit, size in b.items():
        out[unit] = out.get(unit, 0.0) + size
    return {u: v for u, v in out.items() if abs(v) > 1e-9}


def minus(a: Form, b: Form) -> dict[str, float]:
    """What ``a`` has more than ``b``, the units of ``a`` first."""
    return plus(a, {unit: -size for unit, size in b.items()})


@lru_cache(maxsize=1024)
def canonical(unit: str) -> tuple[str, float]:
    """The same unit with its factors in order and no number among them, and that number."""
    kind, colon, body = unit.rpartition(":")
    factors = body.split("*")
    names = sorted(f for f in factors if f[0].isalpha())
    number = prod(float(f) for f in factors if not f[0].isalpha())
    return f"{kind}{colon}{'*'.join(names) or '1'}", number


def packed(lane: int, size: float) -> Packed:
    """``size`` bytes of the unit in that lane.

    :raises ValueError: for a size that is no whole number of 64ths, or does not fit into a lane.
    """
    parts = int(size * _PARTS)
    if parts != size * _PARTS or not 0 <= parts < _TOP:
        raise ValueError(f"{size} bytes an element are no multiple of 1/{_PARTS} that fits into a lane")
    return parts << (lane * _LANE_BITS)


def unpacked(form: Packed, units: Sequence[str]) -> dict[str, float]:
    """The bytes by unit, the lanes in the order of ``units``."""
    lanes = array("I", form.to_bytes(len(units) * _LANE_BITS // 8, "little"))
    return {unit: parts / _PARTS for unit, parts in zip(units, lanes, strict=True) if parts}


def prune(forms: Iterable[Packed], units: Sequence[str]) -> tuple[Form, ...]:
    """Those forms that no other one reaches everywhere."""
    tops = sum(_TOP << (lane * _LANE_BITS) for lane in range(len(units)))
    kept: list[Packed] = []  # with every lane's top bit set: it stays where nothing is borrowed from it
    for form in sorted(set(forms), key=_total, reverse=True):
        for place, other in enumerate(kept):
            if (other - form) & tops == tops:
                if place:  # what was reached once is likely to reach the next one
                    kept.insert(0, kept.pop(place))
                break
        else:
            kept.insert(0, form | tops)
    return tuple([unpacked(form ^ tops, units) for form in kept])


def _total(form: Packed) -> int:
    """The sum of all lanes: the remainder by one less than a lane's range, as digits sum up modulo nine."""
    return form % ((1 << _LANE_BITS) - 1)


class Units:
    """Units of forms in numbers for given dimensions; each unit is read once, however many forms hold it."""

    __slots__ = ("_known", "_rest", "_values")

    def __init__(self, values: Mapping[str, float], rest: str) -> None:
        self._values, self._rest = values, rest
        self._known: dict[str, tuple[str, int, float]] = {}

    def _read(self, unit: str) -> tuple[str, int, float]:
        """(term, which of the triple's numbers, factor)."""
        found = self._known[unit] = (_term(unit, self._rest), *_factor(unit, self._values))
        return found

    def total(self, form: Form) -> Triple:
        """The form's sum."""
        sums, known = [0.0, 0.0, 0.0], self._known
        for unit, size in form.items():
            _, kind, factor = known.get(unit) or self._read(unit)
            sums[kind] += factor * size
        return (sums[0], sums[1], sums[2])

    def terms(self, form: Form) -> dict[str, Triple]:
        """The form by term."""
        out: dict[str, list[float]] = {}
        for unit, size in form.items():
            name, kind, factor = self._known.get(unit) or self._read(unit)
            out.setdefault(name, [0.0, 0.0, 0.0])[kind] += factor * size
        return {name: (sums[0], sums[1], sums[2]) for name, sums in out.items()}


def _term(unit: str, rest: str) -> str:
    if unit.startswith("g:"):
        return "gradients"
    if unit.startswith("w:"):
        return "cast weights"
    if "V" in unit or unit.endswith("*W"):
        return "logits and loss"
    return "attention scores" if "S*S" in unit else rest


def add(*triples: Triple) -> Triple:
    """All together."""
    c = t = q = 0.0
    for triple in triples:
        c, t, q = c + triple[0], t + triple[1], q + triple[2]
    return (c, t, q)


def _factor(unit: str, values: Mapping[str, float]) -> tuple[int, float]:
    """Which of (bytes, bytes a token, bytes a token and length) a unit counts into, and how much."""
    kind, size = 0, values["sh"] if unit == "T*h" else 1.0
    body = unit[2:] if unit[1:2] == ":" else unit
    for factor in body.split("*"):
        if factor in ("T", "B"):
            kind = 1
        elif factor == "K":
            kind = 1
            size *= values["top"]
        elif factor == "S":
            kind = 3 if kind == 2 else 2
        else:
            size *= values[factor] if factor[0].isalpha() else float(factor)
    # B*...*S is tokens; B*...*S*S is tokens times length.
    return (2 if kind == 3 else 1 if kind else 0), size
