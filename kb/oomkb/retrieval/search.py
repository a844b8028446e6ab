"""Finding the known cases that look like a failure, and saying why.

Two questions are asked of a text, and their answers added up (:mod:`~oomkb.retrieval.search`).

*Which cause does it sound like?* A short question rarely uses the words of one case, but mostly those with which people
describe a cause. Three views vote: vectors and words of the questions that stand for each cause, and the words of its
cases.

*Which case is most like it?* Cosine of the case's texts, BM25, agreement of facts (framework, phase, versions ...), and
exact signatures, which win.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from oomkb.dataclass import dataclass
from oomkb.records.case import Case
from oomkb.retrieval.dense import Array
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.facets import agreements
from oomkb.retrieval.index import Index, open_index
from oomkb.retrieval.threads import arrays_of
from oomkb.retrieval.views import Views, look, standardised
from oomkb.tables import read_toml

_MIN_CAUSE_PROBABILITY: Final = 0.4
"""Probability of a cause from which on somebody who reads it is shown where it struck before."""
_TOP_SHOWN: Final = 3
"""Cases that a person looks at."""
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


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


def fused(views: Views, weights: Weights) -> Array:
    """One value per case."""
    total = weights.dense * standardised(views.cosines) + weights.lexical * standardised(views.bm25)
    total += weights.facts * views.facts
    sounds = weights.cause_vectors * views.sounds.vectors + weights.cause_words * views.sounds.words
    sounds = sounds + weights.cause_cases * views.sounds.cases
    total += weights.cause * np.append(sounds, 0.0)[views.owners] + weights.diagnosed * views.diagnosed
    for number, (decides, _) in views.signed.items():
        total[number] += weights.signature * decides
    return total


def spread(total: Array, cases: Sequence[Case], top: int, repeat: float) -> list[tuple[int, float]]:
    """The best ``top``, each later one of the same cause losing ``repeat``; ties go to the smaller id.

    Five cases of one cause tell a reader less than three causes to check.
    """
    rounded = total.round(6)
    values = rounded.tolist()
    taken: Counter[str] = Counter()
    reachable: list[tuple[int, float]] = []
    for number in _descending(rounded, cases):
        if len(reachable) >= top and values[number] < sorted(value for _, value in reachable)[-top]:
            break  # what comes now is below what is there already, before anything is taken off
        cause = cases[number].cause
        if taken[cause] < top:
            reachable.append((number, values[number] - repeat * taken[cause]))
        taken[cause] += 1
    return sorted(reachable, key=lambda pair: -round(pair[1], 6))[:top]


def _descending(values: Array, cases: Sequence[Case]) -> Iterator[int]:
    """Numbers of the cases by value, those of one value by id."""
    order = (-values).argsort(kind="stable").tolist()
    for _, alike in groupby(order, key=values.__getitem__):
        yield from sorted(alike, key=lambda number: cases[number].id)


def with_likely_cause(
    found: list[tuple[int, float]], total: Array, diagnosed: Array, cases: Sequence[Case]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The coefficients, and the probabilities below which nothing is shown.

    Two logistic curves, multiplied: whether the text is about a failure of memory at all, and whether a case of that
    score has the right cause. Fitted by ``bench/calibrate_search.py`` into ``data/calibration.toml`` and
    ``data/related.npz``.
    """

    related_bias: float
    related_cosine: float
    related_words: float
    related_known: float
    cause_bias: float
    cause_value: float
    least_related: float
    least_probability: float

    def related(self, cosine: float, words: float, known: float) -> float:
        """Probability that a text is about a failure of memory.

        :param cosine: of the nearest case.
        :param words: logarithm of one plus the best BM25 of a case.
        :param known: share of the search words that occur in any case, 0..1.
        """
        return _logistic(
            self.related_bias + self.related_cosine * cosine + self.related_words * words + self.related_known * known
        )

    def same_cause(self, value: float) -> float:
        """Probability that a case of this value of the search has the cause of a failure of memory."""
        return _logistic(self.cause_bias + self.cause_value * value)


@cache
def calibration() -> Calibration:
    """The shipped one."""
    return Calibration(**read_toml(Path(__file__).parent / "data" / "calibration.toml")["coefficients"])


def figures_of(index: Index, views: Views) -> tuple[float, float, float]:
    """``cosine``, ``words`` and ``known`` of a text, as :meth:`Calibration.related` takes them."""
    words = set(views.words)
    known = sum(word in index.case_words.words for word in words) / max(1, len(words))
    return float(views.cosines.max()), math.log1p(max(0.0, float(views.bm25.max()))), known


def relatedness(index: Index, views: Views) -> float:
    """Probability that the text is about a failure of memory.

    From how near the nearest case is, how much the best case shares, how much of the text is in the cases' vocabulary,
    and the direction of its vector, which tells a failure of vLLM from a question about vLLM: both are near a case of
    vLLM. The direction was fitted for one encoder; with another the other three figures decide.
    """
    figures, fitted = figures_of(index, views), _fitted()
    if str(fitted["encoder"]) != encoder().key or fitted["vector"].shape != views.vector.shape:
        return calibration().related(*figures)
    bias, *slopes = fitted["figures"].tolist()
    said = sum(slope * figure for slope, figure in zip(slopes, figures, strict=True))
    return _logistic(bias + said + float(fitted["vector"].astype("float32") @ views.vector))


@cache
def _fitted() -> dict[str, Any]:
    """``figures`` (4,): the constant and a slope for each figure; ``vector`` (dimension,); the ``encoder`` of both."""
    return arrays_of("related")


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, value))))


@dataclass(frozen=True, slots=True)
class Match:
    """A known case, and why it was found."""

    case: Case
    score: float
    """Probability that the case has the same cause, calibrated on labelled reports."""
    why: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())
    """(message key, values): ``search.signature`` text, ``search.version`` library ..., strongest first."""

    @property
    def id(self) -> str:
        """``cause/slug``."""
        return self.case.id

    @property
    def cause(self) -> str:
        """The cause of the taxonomy."""
        return self.case.cause

    @property
    def titles(self) -> Mapping[str, str]:
        """Language -> title."""
        return self.case.title

    @property
    def url(self) -> str:
        """The page to read first."""
        return self.case.url


def search(
    text: str, *, top: int = 5, context: Mapping[str, Any] | None = None, cases: Sequence[Case] | None = None
) -> list[Match]:
    """The known cases most like ``text``, best first.

    :param text: a question, or the telling lines of a log (a few KB; more is not read).
    :param context: what else is known: ``framework``, ``method``, ``objective``, ``phase``, ``gpu`` (as people write
        it), ``versions`` (library -> version), ``causes`` (cause -> probability, where a diagnosis has gone before).
    :param cases: search these instead of the shipped and private ones.
    """
    if not text.strip() or top < 1:
        return []
    if cases is None:
        from oomkb.records.loader import load_cases

        cases = load_cases()
    if not cases:
        return []
    index = open_index(cases)
    return choose(index, look(index, text, context or _NONE), top=top)


def choose(index: Index, views: Views, *, top: int = 5) -> list[Match]:
    """The best cases of views that were asked before: a diagnosis looks once, ranks causes, and then chooses.

    None at all for a text that is not about a failure of memory, none that is improbable.
    """
    weights = Weights()
    found = _probable(index, views, _ranked(index, views, top, weights), weights)
    words = index.case_words.shared(views.words, [number for number, _ in found], 12)
    return [
        Match(index.cases[number], score, _why(index, views, number, spoke))
        for (number, score), spoke in zip(found, words, strict=True)
    ]


def scored(index: Index, views: Views, *, top: int, weights: Weights) -> list[tuple[int, float]]:
    """The best cases as (number of the case, likeness 0..1), without a floor: what a diagnosis takes as votes."""
    return [(n, logistic(value)) for n, value in _ranked(index, views, top, weights)]


def _ranked(index: Index, views: Views, top: int, weights: Weights) -> list[tuple[int, float]]:
    total = fused(views, weights)
    found = spread(total, index.cases, top, weights.repeat)
    return with_likely_cause(found, total, views.diagnosed, index.cases) if weights.diagnosed else found


def _probable(
    index: Index, views: Views, found: Sequence[tuple[int, float]], weights: Weights
) -> list[tuple[int, float]]:
    """The found cases with their probabilities, without those below the floor.

    Where a diagnosis has gone before, its probability of the case's cause counts if it is the higher one.
    """
    curves = calibration()
    related = relatedness(index, views)
    out = []
    for number, value in found:
        diagnosed = float(views.diagnosed[number])
        alone = (
            related * curves.same_cause(value - weights.diagnosed * diagnosed)
            if related >= curves.least_related
            else 0.0
        )
        chance = max(alone, diagnosed)
        if chance >= curves.least_probability:
            out.append((number, round(chance, 4)))
    return out


def _why(index: Index, views: Views, number: int, words: Sequence[str]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The reasons, strongest first; ``words`` spoke for the case, best first."""
    reasons: list[tuple[str, Mapping[str, Any]]] = []
    if number in views.signed:
        reasons.append(("search.signature", {"text": views.signed[number][1]}))
    agreed = agreements(views.asked, index.facets[number], index.cases[number])
    for item in sorted(agreed, key=lambda a: -a.weight):
        if item.weight > 0:
            reasons.append((f"search.{item.key}", {"value": item.value}))
    shared = list(dict.fromkeys(views.shown.get(word, word if "_" in word or "." in word else "") for word in words))
    shared = [word for word in shared if word][:4]
    if shared:
        reasons.append(("search.words", {"words": ", ".join(shared)}))
    reasons.append(("search.meaning", {"cosine": round(float(views.cosines[number]), 2)}))
    return tuple(reasons)
