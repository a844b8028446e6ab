"""Numbers as named ranges: a linear table cannot say "between a third and a half"."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["bucket"]


def bucket(value: float, edges: Sequence[float], names: Sequence[str]) -> str:
    """The name of the range that ``value`` lies in; a value on an edge belongs to the upper range.

    ``names`` holds one more than ``edges``, which ascend.
    """
    return names[bisect_right(edges, value)]
