"""The cause that a diagnosis is rather sure of is shown a case of."""

from __future__ import annotations

import numpy as np

from oomkb.records.case import Case
from oomkb.retrieval.search import with_likely_cause


def case(identifier: str) -> Case:
    text = {"en": "t", "zh": "t"}
    return Case(id=identifier, title=text, summary=text, why=text, symptoms=("s",))


CASES = [case(i) for i in ("leak/a", "eval/b", "kv-cache/c", "logits/d", "logits/e", "host-ram/f")]
TOTAL = np.asarray([6.0, 5.0, 4.0, 1.0, 2.0, 3.0], dtype=np.float32)
FOUND = [(0, 6.0), (1, 5.0), (2, 4.0), (5, 3.0)]


def diagnosed(cause: str, chance: float) -> np.ndarray:
    return np.asarray([chance if c.cause == cause else 0.0 for c in CASES], dtype=np.float32)


def test_its_best_case_comes_third_where_none_was_among_the_first() -> None:
    assert with_likely_cause(FOUND, TOTAL, diagnosed("logits", 0.7), CASES) == [(0, 6.0), (1, 5.0), (4, 4.0), (2, 4.0)]


def test_one_that_was_there_anyway_changes_nothing() -> None:
    assert with_likely_cause(FOUND, TOTAL, diagnosed("eval", 0.9), CASES) == FOUND


def test_an_unsure_diagnosis_changes_nothing() -> None:
    assert with_likely_cause(FOUND, TOTAL, diagnosed("logits", 0.3), CASES) == FOUND
    assert with_likely_cause(FOUND[:2], TOTAL, diagnosed("logits", 0.9), CASES) == FOUND[:2]
