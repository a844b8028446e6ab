"""Instants between two points of a step, above what is alive throughout, ready to be read for given dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from oomkb.memory.forms import Form

__all__ = ["Segment", "segment"]


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Forms of instants; the same object wherever the same instants happen."""

    units: tuple[str, ...]
    """All units of the forms."""
    reads: tuple[tuple[Any, tuple[float, ...], Form], ...]
    """For each form: a getter of its units' numbers from a list that begins with two zeros, sizes, the form."""


def segment(forms: Sequence[Form]) -> Segment:
    """The forms with their units numbered."""
    places: dict[str, int] = {}
    reads = []
    for form in forms:
        at = [places.setdefault(unit, len(places) + 2) for unit in form]
        getter = itemgetter(*at) if len(at) > 1 else itemgetter(*at, 0, 1)  # of two items, for a tuple
        reads.append((getter, tuple(form.values()), form))
    return Segment(tuple(places), tuple(reads))
