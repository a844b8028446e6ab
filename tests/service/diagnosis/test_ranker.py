"""The table of weights, and what it makes of features."""

from __future__ import annotations

import math

import pytest

from oomdoc.diagnosis.ranker import (
    SHARED,
    contributions,
    load_table,
    parse_table,
    probabilities,
    rank,
    scores,
    weighed,
)
from oomdoc.diagnosis.result import Feature
from oomkb.records.taxonomy import CAUSES

SMALL = parse_table(
    "# a comment\n"
    "temperature\t*\t1.0\n"
    "doubt\t*\t0.1\n"
    "like:*\t*\t2.0\n"
    "prior\tleak\t0.5\n"
    "says:grows-with-steps\tleak\t3.0\n"
    "says:grows-with-steps\tlogits\t-1.0\n"
)


def test_scores_add_prior_and_weights_by_value() -> None:
    got = scores([Feature("says:grows-with-steps", 0.5), Feature("not:in-the-table")], SMALL)
    assert got["leak"] == pytest.approx(0.5 + 1.5)
    assert got["logits"] == pytest.approx(-0.5)
    assert got["eval"] == 0.0


def test_likeness_counts_for_the_cause_that_it_names() -> None:
    got = scores([Feature("like:eval", 0.5), Feature("like:no-such-cause", 1.0)], SMALL)
    assert got["eval"] == pytest.approx(1.0)
    assert sum(got.values()) == pytest.approx(1.5), "prior of leak, and likeness to eval"


def test_probabilities_sum_to_one_and_leave_doubt_to_every_cause() -> None:
    chances = probabilities(scores([Feature("says:grows-with-steps", 1.0)] * 9, SMALL), SMALL)
    assert math.isclose(sum(chances.values()), 1.0)
    assert min(chances.values()) >= SMALL.doubt / len(CAUSES) - 1e-12
    assert max(chances, key=lambda cause: chances[cause]) == "leak"


def test_contributions_add_up_to_the_score_against_the_average_cause() -> None:
    features = [Feature("says:grows-with-steps", 1.0), Feature("like:leak", 0.8)]
    table = SMALL._replace(prior=dict.fromkeys(CAUSES, 0.0))
    total = scores(features, table)
    mean = sum(total.values()) / len(total)
    assert sum(c.log_odds for c in contributions("leak", weighed(features, table))) == pytest.approx(
        total["leak"] - mean, abs=0.02
    )


def test_the_most_probable_cause_comes_first_with_its_contributions() -> None:
    found = rank([Feature("says:grows-with-steps")], SMALL)
    assert found[0].cause == "leak"
    assert found[0].contributions[0].feature.name == "says:grows-with-steps"
    assert [c.probability for c in found] == sorted((c.probability for c in found), reverse=True)


@pytest.mark.parametrize("row", ["says:x\tno-such-cause\t1.0", "says:x\tleak", "says:x\tleak\tmuch"])
def test_a_broken_row_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match=r"no-such-cause|unpack|could not convert"):
        parse_table(row)


def test_the_shipped_table_is_sparse_and_says_what_it_was_fitted_on() -> None:
    table = load_table()
    rows = sum(len(weights) for weights in table.weights.values())
    assert rows < 0.35 * len(table.weights) * len(CAUSES)
    assert 0.02 <= table.doubt <= 0.15
    assert all(value >= 0 for value in table.shared.values())
    assert set(table.shared) == set(SHARED)
