"""Linear forms: bytes by unit, such as ``{"T*h": 4.0}`` for four bytes per token and hidden element."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import le

__all__ = ["Form", "Vector", "minus", "plus", "prune"]

Form = Mapping[str, float]
Vector = tuple[float, ...]


def plus(a: Form, b: Form) -> dict[str, float]:
    """Both together."""
    out = {u: a.get(u, 0.0) + b.get(u, 0.0) for u in {*a, *b}}
    return {u: v for u, v in out.items() if abs(v) > 1e-9}


def minus(a: Form, b: Form) -> dict[str, float]:
    """What ``a`` has more than ``b``."""
    out = {u: a.get(u, 0.0) - b.get(u, 0.0) for u in {*a, *b}}
    return {u: v for u, v in out.items() if abs(v) > 1e-9}


def prune(vectors: Iterable[Vector], units: Sequence[str]) -> list[Form]:
    """Forms of those vectors that no other one reaches everywhere.

    A vector holds the bytes of each unit in the order of ``units``; units that came later are zero in it.
    """
    kept: list[Vector] = []
    for vector in sorted(set(vectors), key=sum, reverse=True):
        for place, other in enumerate(kept):
            if all(map(le, vector, other)) and (len(vector) <= len(other) or not any(vector[len(other) :])):
                if place:  # what was reached once is likely to reach the next one
                    kept.insert(0, kept.pop(place))
                break
        else:
            kept.insert(0, vector)
    return [{u: v for u, v in zip(units, vector, strict=False) if v > 1e-9} for vector in kept]
