"""One thing read off a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A fact's name and value, and where it stands in the whole text (a character)."""

    name: str
    value: Any
    offset: int
    confidence: float = 1.0


def agreed(found: Iterable[Found]) -> Iterator[Found]:
    """The first of each name, where all of that name have one value; of a name that is set differently, none."""
    by_name: dict[str, list[Found]] = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    for first, *others in by_name.values():
        if all(other.value == first.value for other in others):
            yield first
