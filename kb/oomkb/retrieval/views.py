"""What each view of a question says of every case and every cause."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from oomkb.dataclass import dataclass
from oomkb.kept import lazy
from oomkb.retrieval import dense
from oomkb.retrieval.dense import Array
from oomkb.retrieval.documents import matched, query_words, shown_words
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.facets import Facets, query_facets
from oomkb.retrieval.index import Index
from oomkb.retrieval.text import gloss, telling
from oomkb.retrieval.threads import KnownThread, likenesses

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_CHUNK_CHARS: Final = 500
"""About what the default model reads at once."""
_BEGINNING_CHARS: Final = 240
"""What of a report is embedded, sizes and repeated lines left out. On the labelled reports and on the cases judged as
reports (``bench/diagnosis_accuracy.py``) 500 characters with their figures name no cause better, and cost twice the
tokens: 169 instead of 89 in the mean at 250."""
_FIGURES: Final = lazy(
    r"\d{1,15}(?:\.\d{1,15})?\s?[kmgt]i?b\b|\b0x[0-9a-f]{1,16}\b|\d{4,}"
    r"|(?<![a-z0-9])(?<![a-z]-)v?\d{1,15}(?:\.\d{1,15}){1,6}|(?<![a-z0-9])(?<![a-z]-)\d{1,3}(?![a-z0-9])",
    re.IGNORECASE,
)
"""Sizes, addresses, versions and counts: to a sentence model noise that takes five tokens each. Hardware and versions
are compared apart (:mod:`oomkb.retrieval.facets`); and of two reports of one failure the same text is left, so that a
service embeds it once."""
_CANDIDATES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseVotes:
    """How much the question sounds like each cause, three times: in standard deviations over the causes."""

    vectors: Array
    words: Array
    cases: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """What each view says of every case, in the order of ``index.cases``."""

    vector: Array
    """(dimension,) the mean of what was embedded of the text."""
    words: tuple[str, ...]
    shown: Mapping[str, str]
    """Search word -> what to show a person for it."""
    cosines: Array
    bm25: Array
    asked: Facets
    """The comparable facts of the question."""
    facts: Array
    """How much of them each case shares."""
    signed: Mapping[int, tuple[float, str]]
    sounds: CauseVotes
    owners: Array
    """The number of each case's cause, in the order of ``sounds``; -1 for a cause of a private folder's own."""
    diagnosed: Array
    """The probability of the case's cause, where a diagnosis has gone before."""
    threads: tuple[KnownThread, ...] = ()
    """The public threads that a report is most like; of a question they are not asked."""


def look(index: Index, text: str, context: Mapping[str, Any] = _NONE, *, beginning: bool = False) -> Views:
    """Ask every view.

    :param beginning: embed the beginning only: a diagnosis puts what tells most first, its end adds only time.
    """
    words = query_words(text)
    english = plain_words(text) if beginning else ""
    chunks = [english[:_BEGINNING_CHARS]] if beginning else _chunks(text)
    vectors = np.stack([embedded(chunk) for chunk in chunks])
    asked = query_facets(text, context)
    bm25 = index.case_words.scores(words)
    owners = index.case_causes
    return Views(
        vector=vectors.mean(axis=0),
        words=tuple(words),
        shown=shown_words(text),
        cosines=_case_cosines(index, vectors),
        bm25=bm25,
        asked=asked,
        facts=index.columns.weights(asked),
        signed=matched(text, index.cases),
        sounds=_votes(index, vectors, words, (bm25, owners)),
        owners=owners,
        diagnosed=diagnosed_of(index, context.get("causes") or {}),
        threads=likenesses(text, english) if beginning else (),
    )


def diagnosed_of(index: Index, causes: Mapping[str, float]) -> Array:
    """(cases,) the probability of each case's cause, where a diagnosis has gone before; ``causes`` by name."""
    chances = np.asarray([*(float(causes.get(name, 0.0)) for name in index.causes), 0.0], dtype=np.float32)
    by_case: Array = chances[index.case_causes]
    return by_case


def _votes(
    index: Index,
    vectors: Array,
    words: Sequence[str],
    cases: tuple[Array, Array],
) -> CauseVotes:
    """:param cases: BM25 of every case, and the number of its cause."""
    cosines, rows = dense.nearest(index.cause_vectors, vectors, index.cause_vectors.ntotal)
    best = np.full(len(index.cause_owners), -1.0, dtype=np.float32)
    for found, row in zip(cosines, rows, strict=True):
        best[row] = np.maximum(best[row], found)
    count = len(index.causes)
    return CauseVotes(
        vectors=standardised(best_mean(best, index.cause_owners, count, 3)),
        words=standardised(index.cause_words.scores(words)),
        cases=standardised(best_mean(cases[0], cases[1], count, 2)),
    )


def best_mean(values: Array, owners: Array, count: int, best: int) -> Array:
    """Per owner the sum of its ``best`` highest values over ``best``; owners with fewer have zeros in their place."""
    order = np.lexsort((-values, owners))
    order = order[np.searchsorted(owners, 0, sorter=order) :]  # -1: nobody's
    owned = owners[order]
    rank = np.arange(len(order)) - np.searchsorted(owned, owned)
    kept = rank < best
    highest = np.zeros((count, best), dtype=np.float32)
    highest[owned[kept], rank[kept]] = values[order[kept]]
    return np.asarray(highest.sum(axis=1) / np.float32(best))


def _chunks(text: str) -> list[str]:
    """What of the question the model reads: its beginning and, where it is long, its end (where a log fails)."""
    english = gloss(telling(text))
    if len(english) <= _CHUNK_CHARS:
        return [english]
    return [english[:_CHUNK_CHARS], english[-_CHUNK_CHARS:]]


def plain_words(text: str) -> str:
    """A report in English words: each line once, without figures and what every report says."""
    lines = "\n".join(dict.fromkeys(gloss(telling(text)).split("\n")))
    return re.sub(r"[ \t]+", " ", _FIGURES.sub(" ", lines)).strip()


def embedded(chunk: str) -> Array:
    """The vector of a text, which is not to be changed; texts that were met are not embedded again."""
    return _vector(encoder().key, chunk)


@lru_cache(maxsize=2048)
def _vector(_key: str, chunk: str) -> Array:
    """Reports of one failure often share their end; embedding it is most of the time of a search.

    :param _key: the encoder's.
    """
    vector: Array = encoder().encode_quickly([chunk])[0]
    return vector


def _case_cosines(index: Index, vectors: Array) -> Array:
    """The best cosine of any text of each case with any part of the question."""
    count = min(index.case_vectors.ntotal, _CANDIDATES)
    cosines, rows = dense.nearest(index.case_vectors, vectors, count)
    seen = rows.ravel() >= 0
    best = np.full(len(index.cases), float(cosines.ravel()[seen].min(initial=0.0)), dtype=np.float32)
    np.maximum.at(best, index.case_owners[rows.ravel()[seen]], cosines.ravel()[seen])
    return best


def standardised(values: Array) -> Array:
    """In standard deviations from the mean; nothing where all are alike."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 1e-6 else values * 0
