"""Linear forms: bytes by unit, such as ``{"T*h": 4.0}`` for four bytes per token and hidden element.

While a step is played a form is one whole number, a lane of bits for each unit: adding and taking away is one addition,
and whether one form reaches another everywhere one subtraction.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final

__all__ = ["Form", "Packed", "canonical", "minus", "packed", "plus", "prune", "unpacked"]

Form = Mapping[str, float]
Packed = int
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
    out = dict(a)
    for unit, size in b.items():
        out[unit] = out.get(unit, 0.0) - size
    return {u: v for u, v in out.items() if abs(v) > 1e-9}


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


def prune(forms: Iterable[Packed], units: Sequence[str]) -> list[Form]:
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
    return [unpacked(form ^ tops, units) for form in kept]


def _total(form: Packed) -> int:
    """The sum of all lanes: the remainder by one less than a lane's range, as digits sum up modulo nine."""
    return form % ((1 << _LANE_BITS) - 1)
