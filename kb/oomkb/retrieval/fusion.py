"""Adding the views up, and choosing from the sums."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from oomkb.dataclass import dataclass
from oomkb.records.case import Case
from oomkb.retrieval.views import Views, standardised

if TYPE_CHECKING:
    import numpy as np

_MIN_CAUSE_PROBABILITY: Final = 0.4
"""Probability of a cause from which on somebody who reads it is shown where it struck before."""
_TOP_SHOWN: Final = 3
"""Cases that a person looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each view counts.

    Few, round, the same for views of one kind. ``cause`` makes the sum of three votes a log-probability (fitted by
    leaving each case out of its own search); the rest was chosen by the same measure:
    ``bench/retrieval_ablation.py``.
    """

    cause: float = 0.6
    cause_vectors: float = 1.0
    cause_words: float = 1.0
    cause_cases: float = 1.0
    dense: float = 0.3
    lexical: float = 0.3
    facts: float = 0.3
    signature: float = 6.0
    diagnosed: float = 4.0
    """For the causes that a diagnosis has already found (``context["causes"]``)."""
    repeat: float = 2.5
    """What a case loses for each better one of the same cause: e^2.5 means twelve times as probable."""


def fused(views: Views, weights: Weights) -> np.ndarray[Any, Any]:
    """One value per case."""
    import numpy as np

    total = weights.dense * standardised(views.cosines) + weights.lexical * standardised(views.bm25)
    total += weights.facts * views.facts
    sounds = weights.cause_vectors * views.sounds.vectors + weights.cause_words * views.sounds.words
    sounds = sounds + weights.cause_cases * views.sounds.cases
    total += weights.cause * np.append(sounds, 0.0)[views.owners] + weights.diagnosed * views.diagnosed
    for number, (decides, _) in views.signed.items():
        total[number] += weights.signature * decides
    return total


def spread(total: np.ndarray[Any, Any], cases: Sequence[Case], top: int, repeat: float) -> list[tuple[int, float]]:
    """The best ``top``, each later one of the same cause losing ``repeat``; ties go to the smaller id.

    Five cases of one cause tell a reader less than three causes to check.
    """
    values = total.round(6).tolist()
    taken: Counter[str] = Counter()
    reachable: list[tuple[int, float]] = []
    for number in _descending(values, cases):
        if len(reachable) >= top and values[number] < sorted(value for _, value in reachable)[-top]:
            break  # what comes now is below what is there already, before anything is taken off
        cause = cases[number].cause
        if taken[cause] < top:
            reachable.append((number, values[number] - repeat * taken[cause]))
        taken[cause] += 1
    return sorted(reachable, key=lambda pair: -round(pair[1], 6))[:top]


def _descending(values: Sequence[float], cases: Sequence[Case]) -> Iterator[int]:
    """Numbers of the cases by value, those of one value by id."""
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)
    for _, alike in groupby(order, key=values.__getitem__):
        yield from sorted(alike, key=lambda number: cases[number].id)


def with_likely_cause(
    found: list[tuple[int, float]], total: np.ndarray[Any, Any], diagnosed: np.ndarray[Any, Any], cases: Sequence[Case]
) -> list[tuple[int, float]]:
    """As found, but with a case of the cause that a diagnosis is rather sure of among the first three.

    Whoever reads a cause wants to see where it struck before; ``diagnosed`` is the probability of each case's cause.
    """
    best = int(diagnosed.argmax()) if len(diagnosed) else 0
    if len(found) < _TOP_SHOWN or diagnosed[best] < _MIN_CAUSE_PROBABILITY:
        return found
    cause = cases[best].cause
    if any(cases[number].cause == cause for number, _ in found[:_TOP_SHOWN]):
        return found
    held = max((n for n, case in enumerate(cases) if case.cause == cause), key=lambda n: float(total[n]))
    rest = [pair for pair in found if pair[0] != held]
    return [*rest[: _TOP_SHOWN - 1], (held, rest[_TOP_SHOWN - 1][1]), *rest[_TOP_SHOWN - 1 :]][: len(found)]


def logistic(value: float) -> float:
    """Onto 0..1: 3, about what one clear vote for cause and case gives, becomes one half."""
    return round(1 / (1 + math.exp(-(value - 3.0) / 2.0)), 4)
