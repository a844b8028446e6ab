"""Sets of alternatives in the order of what they cost, without pricing one.

Many sets are put in order with arrays, few one by one; both give the same sets in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations
from typing import Any, Final

import numpy as np


def cheapest_sets(
    costs: Sequence[float],
    sizes: Sequence[int],
    agree: Callable[[int, int], bool],
    chosen_from: Callable[[Any], Any] | None = None,
) -> Iterator[tuple[int, ...]]:
    """The sets of these sizes whose members agree pairwise, the cheapest first; members are places in ``costs``.

    Those of one cost come in the order of their members. A hundred alternatives have 180,000 sets of three.

    :param agree: asked once for each pair, and only for those in sets that are looked at.
    :param chosen_from: which of many sets at once are looked at: (sets, members), a missing member -1, to (sets,).
    """
    return agreeing(by_cost(costs, sizes), agree, chosen_from)


def agreeing(
    batches: Iterable[Any], agree: Callable[[int, int], bool], chosen_from: Callable[[Any], Any] | None
) -> Iterator[tuple[int, ...]]:
    """Of sets in order, many at once, those that are looked at and whose members agree pairwise."""
    known: dict[tuple[int, int], bool] = {}

    def agreed(pair: tuple[int, int]) -> bool:
        if pair not in known:
            known[pair] = agree(*pair)
        return known[pair]

    for sets in batches:
        for one in (sets if chosen_from is None else sets[chosen_from(sets)]).tolist():
            chosen = tuple(place for place in one if place >= 0)
            if all(map(agreed, combinations(chosen, 2))):
                yield chosen


def by_cost(costs: Sequence[float], sizes: Sequence[int], most: float = math.inf) -> Iterator[Any]:
    """The sets (sets, members), many at once, the cheapest first, as far as they cost no more than ``most``."""
    members, totals = _all_sets(np.asarray(costs, dtype=float), sizes)
    if most < math.inf:
        kept = totals <= most
        members, totals = members[kept], totals[kept]
    return (members[rows] for rows in _cheapest_first(members, totals))


def few_sets(costs: Sequence[float], depth: int, apart: Sequence[Sequence[bool]], most: float) -> Any:
    """As :func:`by_cost`, all at once, of sets whose members are apart: for few, arrays cost more than a loop.

    :param costs: none below zero, in ascending order.
    :param apart: by two places, whether they may stand in one set.
    """
    found: list[tuple[float, tuple[int, ...]]] = []
    extended: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while extended:
        total, chosen = extended.pop()
        for place in range(chosen[-1] + 1 if chosen else 0, len(costs)):
            cost = total + costs[place]
            if cost > most:
                break
            if all(map(apart[place].__getitem__, chosen)):
                found.append((cost, (*chosen, place)))
                if len(chosen) + 1 < depth:
                    extended.append(found[-1])
    return np.array([(*chosen, *(-1,) * (depth - len(chosen))) for _, chosen in sorted(found)])


def _all_sets(costs: Any, sizes: Sequence[int]) -> tuple[Any, Any]:
    """(sets, members) places in ascending order, the missing ones of smaller sets -1 at the end, and (sets,) costs."""
    members, padded = _members(len(costs), tuple(sizes)), np.append(costs, 0.0)
    totals = np.zeros(len(members))
    for column in members.T:
        totals += padded[column]
    return members, totals


@lru_cache(maxsize=8)
def pairs(width: int) -> tuple[Any, Any]:
    """The columns of every pair of members."""
    ones, others = np.triu_indices(width, 1)
    return ones, others


@lru_cache(maxsize=32)
def _members(count: int, sizes: tuple[int, ...]) -> Any:
    """(sets, members) of ``count`` places, each size as :func:`itertools.combinations` has it, row by row."""
    members = np.full((sum(math.comb(count, size) for size in sizes), max(sizes)), -1, dtype=np.int16)
    start = 0
    for size in sizes:
        end = start + math.comb(count, size)
        places = chain.from_iterable(combinations(range(count), size))
        members[start:end, :size] = np.fromiter(places, dtype=np.int16).reshape(-1, size)
        start = end
    return members


_AT_ONCE: Final = 512
"""Sets that are put in order first; few searches ask for more, and each time eight times as many follow."""


def _cheapest_first(members: Any, totals: Any) -> Iterator[Any]:
    """The rows of the sets, many at once, the cheapest first, of one cost in the order of their members."""
    below, wanted = -math.inf, _AT_ONCE
    while below < math.inf:
        # All of one cost come together.
        bound = np.partition(totals, wanted)[wanted] if wanted < len(totals) else math.inf
        rows = np.flatnonzero((totals > below) & (totals <= bound))
        if len(rows):
            yield rows[np.lexsort((*members[rows].T[::-1], totals[rows]))]
        below, wanted = bound, wanted * 8
