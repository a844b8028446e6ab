"""Sets by their cost: the same as by trying all of them, with each pair asked about once."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from oomdoc.diagnosis.planning.sets import cheapest_sets

COSTS = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 1.0, -2.0]), max_size=9)


@given(COSTS, st.sampled_from([(1, 2, 3), (2,), (3,)]), st.integers(2, 5))
def test_the_order_is_that_of_the_costs_and_each_pair_is_asked_once(costs, sizes, apart):
    asked: Counter[tuple[int, int]] = Counter()

    def agree(a: int, b: int) -> bool:
        asked[a, b] += 1
        return (b - a) % apart != 0

    found = list(cheapest_sets(costs, sizes, agree))
    every = [(sum(costs[i] for i in s), s) for n in sizes for s in combinations(range(len(costs)), n)]
    agreed = [s for _, s in sorted(every) if all((b - a) % apart for a, b in combinations(s, 2))]
    assert found == agreed
    assert max(asked.values(), default=0) <= 1
