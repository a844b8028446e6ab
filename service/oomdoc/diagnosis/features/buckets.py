"""Numbers as named ranges: a linear table cannot say "between a third and a half"."""

from __future__ import annotations

from collections.abc import Mapping


def bucket(value: float, ranges: Mapping[str, float]) -> str:
    """The name of the range that ``value`` lies in: the first of those, in ascending order, whose end is above it."""
    return next(name for name, end in ranges.items() if value < end)
