"""Finding the known cases that look like a failure, and saying why.

Two questions are asked of a text, and their answers added up (:mod:`~oomkb.retrieval.fusion`).

*Which cause does it sound like?* A short question rarely uses the words of one case, but mostly those with which people
describe a cause. Three views vote: vectors and words of the questions that stand for each cause, and the words of its
cases.

*Which case is most like it?* Cosine of the case's texts, BM25, agreement of facts (framework, phase, versions ...), and
exact signatures, which win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.records.case import Case
from oomkb.retrieval.calibration import calibration, relatedness
from oomkb.retrieval.facets import agreements
from oomkb.retrieval.fusion import Weights, fused, logistic, spread, with_likely_cause
from oomkb.retrieval.index import Index, open_index
from oomkb.retrieval.views import Views, look

__all__ = ["Match", "choose", "scored", "search", "search_index"]

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


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
    return search_index(open_index(cases), text, top=top, context=context or _NONE) if cases else []


def search_index(
    index: Index, text: str, *, top: int = 5, context: Mapping[str, Any] = _NONE, weights: Weights | None = None
) -> list[Match]:
    """As :func:`search`, in an index that is already open."""
    return choose(index, look(index, text, context), top=top, weights=weights)


def choose(index: Index, views: Views, *, top: int = 5, weights: Weights | None = None) -> list[Match]:
    """The best cases of views that were asked before: a diagnosis looks once, ranks causes, and then chooses.

    None at all for a text that is not about a failure of memory, none that is improbable.
    """
    weights = weights or Weights()
    found = _probable(index, views, _ranked(index, views, top, weights), weights)
    words = index.case_words.shared(views.words, [number for number, _ in found], 12)
    return [
        Match(index.cases[number], score, _why(index, views, number, spoke))
        for (number, score), spoke in zip(found, words, strict=True)
    ]


def scored(index: Index, views: Views, *, top: int = 5, weights: Weights | None = None) -> list[tuple[int, float]]:
    """The best cases as (number of the case, likeness 0..1), without a floor: what a diagnosis takes as votes."""
    return [(n, logistic(value)) for n, value in _ranked(index, views, top, weights or Weights())]


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
