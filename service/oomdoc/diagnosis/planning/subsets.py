"""Sets of alternatives by their cost: what the planner tries on a server, and what the inference tries on a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

__all__ = ["cheapest_sets"]


def cheapest_sets(
    costs: Sequence[float], sizes: Sequence[int], agree: Callable[[int, int], bool]
) -> Iterator[tuple[int, ...]]:
    """The sets of these sizes whose members agree pairwise, the cheapest first; members are places in ``costs``.

    :param agree: asked only for the sets that are looked at.
    """
    sets = [(sum(costs[i] for i in chosen), chosen) for n in sizes for chosen in combinations(range(len(costs)), n)]
    for _, chosen in sorted(sets):
        if all(agree(a, b) for a, b in combinations(chosen, 2)):
            yield chosen
