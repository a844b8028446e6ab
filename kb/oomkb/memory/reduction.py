"""From a form's units to numbers: bytes, bytes per token, bytes per token and length."""

from __future__ import annotations

from collections.abc import Mapping

from oomkb.memory.forms import Form

__all__ = ["Triple", "Units", "add"]

Triple = tuple[float, float, float]


class Units:
    """Units of forms in numbers for given dimensions; each unit is read once, however many forms hold it."""

    __slots__ = ("_known", "_rest", "_values")

    def __init__(self, values: Mapping[str, float], rest: str) -> None:
        self._values, self._rest = values, rest
        self._known: dict[str, tuple[str, int, float]] = {}

    def read(self, unit: str) -> tuple[str, int, float]:
        """(term, which of the triple's numbers, factor)."""
        found = self._known[unit] = (_term(unit, self._rest), *_factor(unit, self._values))
        return found

    def factor(self, unit: str) -> tuple[int, float]:
        """(which of the triple's numbers, factor)."""
        return (self._known.get(unit) or self.read(unit))[1:]

    def total(self, form: Form) -> Triple:
        """The form's sum."""
        sums, known = [0.0, 0.0, 0.0], self._known
        for unit, size in form.items():
            _, kind, factor = known.get(unit) or self.read(unit)
            sums[kind] += factor * size
        return (sums[0], sums[1], sums[2])

    def terms(self, form: Form) -> dict[str, Triple]:
        """The form by term."""
        out: dict[str, list[float]] = {}
        for unit, size in form.items():
            name, kind, factor = self._known.get(unit) or self.read(unit)
            out.setdefault(name, [0.0, 0.0, 0.0])[kind] += factor * size
        return {name: (sums[0], sums[1], sums[2]) for name, sums in out.items()}


def _term(unit: str, rest: str) -> str:
    if unit.startswith("g:"):
        return "gradients"
    if unit.startswith("w:"):
        return "cast weights"
    if "V" in unit:
        return "logits and loss"
    return "attention scores" if "S*S" in unit else rest


def add(a: Triple, b: Triple) -> Triple:
    """Both together."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


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
