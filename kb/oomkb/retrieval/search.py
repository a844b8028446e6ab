"""Finding the known cases that look like a failure: vectors, words, facts and signatures, fused.

Four views score every case: cosine of its texts, BM25, agreement of facts, exact signatures. The first two are made
comparable by standardising them over all cases. A fifth view asks which *cause* the words speak for: a short question
rarely uses any case's words, but mostly those with which people describe that cause. Of equally good cases, another
cause goes first: five cases of one cause tell a reader less than three causes to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from oomkb.records.case import Case
from oomkb.retrieval import dense
from oomkb.retrieval.documents import query_words
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.facets import Agreement, agreements, query_facets
from oomkb.retrieval.gloss import gloss
from oomkb.retrieval.index import Index, open_index
from oomkb.retrieval.signatures import matched

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Match", "Weights", "cause_scores", "search", "search_index"]

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_CHUNK_CHARS: Final = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each view counts. Few, round, and chosen by leaving each case out of its own search (``bench/``)."""

    dense: float = 1.0
    lexical: float = 1.0
    facts: float = 0.5
    signature: float = 8.0
    cause: float = 1.0
    told: float = 3.0
    """For the causes that a diagnosis has already found (``context["causes"]``)."""
    repeat: float = 0.7
    """What a case loses for each better one of the same cause."""


@dataclass(frozen=True, slots=True)
class Match:
    """A known case, and why it was found."""

    case: Case
    score: float
    """0..1, comparable within one search."""
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
    import numpy as np

    weights = weights or Weights()
    words = query_words(text)
    vectors = encoder().encode(_chunks(text))
    cosines = _case_cosines(index, vectors)
    bm25 = index.case_words.scores(words)
    known = query_facets(text, context)
    agreed = [list(agreements(known, has, case)) for has, case in zip(index.facets, index.cases, strict=True)]
    signed = matched(text, index.cases)
    causes = cause_scores(index, vectors, words)
    told = context.get("causes") or {}
    total = weights.dense * _standard(cosines) + weights.lexical * _standard(bm25)
    total += weights.facts * np.asarray([sum(a.weight for a in each) for each in agreed], dtype=np.float32)
    for number, case in enumerate(index.cases):
        total[number] += weights.cause * causes.get(case.cause, 0.0) + weights.told * float(told.get(case.cause, 0.0))
        total[number] += weights.signature * signed.get(number, (0.0, ""))[0]
    found = []
    for number, value in _spread(total, index.cases, top, weights.repeat):
        reasons = _why(
            index,
            number,
            words=words,
            cosine=float(cosines[number]),
            agreed=agreed[number],
            signed=signed.get(number),
        )
        found.append(Match(index.cases[number], _squashed(value), reasons))
    return found


def cause_scores(index: Index, vectors: np.ndarray[Any, Any], words: Sequence[str]) -> dict[str, float]:
    """How much the question sounds like each cause: standard deviations above the mean over the causes."""
    import numpy as np

    cosines, rows = dense.nearest(index.cause_vectors, vectors, index.cause_vectors.ntotal)
    best: dict[int, list[float]] = {}
    for cosine, row in sorted(zip(cosines.ravel().tolist(), rows.ravel().tolist(), strict=True), reverse=True):
        best.setdefault(int(index.cause_owners[row]), []).append(cosine)
    near = np.asarray([float(np.mean(best[number][:3])) for number in range(len(index.causes))], dtype=np.float32)
    said = index.cause_words.scores(words)
    both = (_standard(near) + _standard(said)) / 2
    return dict(zip(index.causes, both.tolist(), strict=True))


def _chunks(text: str) -> list[str]:
    """What of the question the model reads: its beginning and, where it is long, its end (where a log fails)."""
    english = gloss(text)
    if len(english) <= _CHUNK_CHARS:
        return [english]
    return [english[:_CHUNK_CHARS], english[-_CHUNK_CHARS:]]


def _case_cosines(index: Index, vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The best cosine of any text of each case with any part of the question."""
    import numpy as np

    count = min(index.case_vectors.ntotal, 4096)
    cosines, rows = dense.nearest(index.case_vectors, vectors, count)
    seen = rows.ravel() >= 0
    best = np.full(len(index.cases), float(cosines.ravel()[seen].min(initial=0.0)), dtype=np.float32)
    np.maximum.at(best, index.case_owners[rows.ravel()[seen]], cosines.ravel()[seen])
    return best


def _standard(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In standard deviations from the mean; nothing where all are alike."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 1e-6 else values * 0


def _spread(total: np.ndarray[Any, Any], cases: Sequence[Case], top: int, repeat: float) -> list[tuple[int, float]]:
    """The best ``top``, each further one of the same cause losing ``repeat``; ties go to the smaller id."""
    order = sorted(range(len(cases)), key=lambda i: (-round(float(total[i]), 6), cases[i].id))
    picked: list[tuple[int, float]] = []
    taken: Counter[str] = Counter()
    left = order[: max(200, 10 * top)] if len(order) > 200 else order
    while left and len(picked) < top:
        values = [float(total[number]) - repeat * taken[cases[number].cause] for number in left]
        best = values.index(max(values))
        number = left.pop(best)
        picked.append((number, values[best]))
        taken[cases[number].cause] += 1
    return picked


def _squashed(value: float) -> float:
    """Onto 0..1; 3 standard deviations in two views together give one half."""
    import math

    return round(1 / (1 + math.exp(-(value - 6.0) / 2.0)), 4)


def _why(
    index: Index,
    number: int,
    *,
    words: Sequence[str],
    cosine: float,
    agreed: Sequence[Agreement],
    signed: tuple[float, str] | None,
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    reasons: list[tuple[str, Mapping[str, Any]]] = []
    if signed is not None:
        reasons.append(("search.signature", {"text": signed[1]}))
    for item in sorted(agreed, key=lambda a: -a.weight):
        if item.weight > 0:
            reasons.append((f"search.{item.key}", {"value": item.value}))
    shared = index.case_words.shared(words, number, 4)
    if shared:
        reasons.append(("search.words", {"words": ", ".join(shared)}))
    reasons.append(("search.meaning", {"cosine": round(cosine, 2)}))
    return tuple(reasons)
