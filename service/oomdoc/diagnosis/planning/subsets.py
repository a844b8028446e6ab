"""Sets of alternatives by their cost: what the planner tries on a server, and what the inference tries on a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations


def cheapest_sets(
    costs: Sequence[float], sizes: Sequence[int], agree: Callable[[int, int], bool]
) -> Iterator[tuple[int, ...]]:
    """The sets of these sizes whose members agree pairwise, the cheapest first; members are places in ``costs``.

    Those of one cost come in the order of their members. A hundred alternatives have 180,000 sets of three.

    :param agree: asked once for each pair, and only for those in sets that are looked at.
    """
    import numpy as np

    every, most = range(len(costs)), max(sizes)
    # A set of fewer members is filled up with -1, which the last of ``padded`` has no cost for.
    filled = ((*chosen, *[-1] * (most - n)) for n in sizes for chosen in combinations(every, n))
    sets = np.fromiter(chain.from_iterable(filled), dtype=int).reshape(-1, most)
    padded = np.append(np.asarray(costs, dtype=float), 0.0)
    total = np.zeros(len(sets))
    for column in range(most):
        total += padded[sets[:, column]]
    agreed = lru_cache(maxsize=None)(agree)
    for row in np.lexsort((*sets.T[::-1], total)):
        chosen = tuple(place for place in sets[row].tolist() if place >= 0)
        if all(agreed(a, b) for a, b in combinations(chosen, 2)):
            yield chosen
