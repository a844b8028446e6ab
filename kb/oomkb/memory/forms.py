"""Linear forms: bytes by unit, such as ``{"T*h": 4.0}`` for four bytes per token and hidden element."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Form", "minus", "plus", "prune"]

Form = Mapping[str, float]


def plus(a: Form, b: Form) -> dict[str, float]:
    """Both together."""
    out = {u: a.get(u, 0.0) + b.get(u, 0.0) for u in {*a, *b}}
    return {u: v for u, v in out.items() if abs(v) > 1e-9}


def minus(a: Form, b: Form) -> dict[str, float]:
    """What ``a`` has more than ``b``."""
    out = {u: a.get(u, 0.0) - b.get(u, 0.0) for u in {*a, *b}}
    return {u: v for u, v in out.items() if abs(v) > 1e-9}


def prune(forms: list[dict[str, float]]) -> list[Form]:
    """Drop forms that another one reaches everywhere."""
    ranked = sorted(forms, key=_weight, reverse=True)
    kept: list[dict[str, float]] = []
    for form in ranked:
        items = [(u, v) for u, v in form.items() if v > 1e-9]
        for place, other in enumerate(kept):
            get = other.get
            for u, v in items:
                if get(u, 0.0) < v:
                    break
            else:
                if place:  # what was reached once is likely to reach the next one
                    kept.insert(0, kept.pop(place))
                break
        else:
            kept.insert(0, dict(items))
    return list(kept)


def _weight(form: dict[str, float]) -> float:
    return sum(form.values())
