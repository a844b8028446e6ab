"""BM25 over search words, kept as plain arrays that open in milliseconds.

Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", with the
idf that never turns negative.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from oomkb.dataclass import dataclass
from oomkb.retrieval.dense import Array

_K1: Final = 1.2
_B: Final = 0.6


def spans_of(starts: Array, numbers: Array) -> tuple[Array, Array]:
    """The places from ``starts[n]`` to before ``starts[n + 1]`` of each number ``n`` in turn.

    :returns: of each place, which of ``numbers`` it belongs to, and the place itself.
    """
    begins = starts[numbers]
    lengths = starts[numbers + 1] - begins
    owners = np.repeat(np.arange(len(numbers)), lengths)
    offsets = np.cumsum(lengths) - lengths
    return owners, np.arange(len(owners)) + (begins - offsets)[owners]


@dataclass(frozen=True, slots=True)
class LexicalIndex:
    """Word -> the documents that hold it, with the BM25 weight of each occurrence."""

    words: dict[str, int]
    starts: Array
    documents: Array
    weights: Array
    size: int

    def scores(self, query: Iterable[str]) -> Array:
        """float32 per document. A word counts once, however often a log repeats it."""
        _, _, places = self._postings(query)
        total = np.bincount(self.documents[places], self.weights[places], minlength=self.size)
        return total.astype(np.float32)

    def shared(self, query: Iterable[str], documents: Iterable[int], count: int) -> list[list[str]]:
        """For each of the documents the words that spoke most for it, best first: the reason to show."""
        words, owners, places = self._postings(query)
        holders = self.documents[places]
        out = []
        for document in documents:
            mine = np.flatnonzero(holders == document)
            spoke = sorted((-float(self.weights[places[i]]), words[owners[i]]) for i in mine)
            out.append([word for _, word in spoke[:count]])
        return out

    def _postings(self, query: Iterable[str]) -> tuple[list[str], Array, Array]:
        """The words of a query that occur at all; of each occurrence the number of its word among these, and its place
        in the arrays of the index.
        """
        numbered = ((word, self.words.get(word)) for word in dict.fromkeys(query))
        known = [(word, number) for word, number in numbered if number is not None]
        owners, places = spans_of(self.starts, np.asarray([number for _, number in known], dtype=np.int64))
        return [word for word, _ in known], owners, places

    def save(self, folder: Path, name: str) -> None:
        """Write it as ``NAME.json`` and ``NAME.npz``."""
        words = json.dumps({"size": self.size, "words": list(self.words)}, ensure_ascii=False)
        (folder / f"{name}.json").write_text(words, encoding="utf-8")
        np.savez(folder / f"{name}.npz", starts=self.starts, documents=self.documents, weights=self.weights)


def open_lexical(folder: Path, name: str) -> LexicalIndex:
    """What :meth:`LexicalIndex.save` wrote."""
    head = json.loads((folder / f"{name}.json").read_bytes())
    words = {word: number for number, word in enumerate(head["words"])}
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return LexicalIndex(words, arrays["starts"], arrays["documents"], arrays["weights"], head["size"])


def build_lexical(documents: Sequence[Sequence[str]]) -> LexicalIndex:
    """The index of documents that are given as their search words; a field counts more by being repeated."""
    counts = [Counter(words) for words in documents]
    lengths = [sum(c.values()) for c in counts]
    average = max(1.0, sum(lengths) / max(1, len(lengths)))
    holders: dict[str, list[int]] = {}
    for number, counter in enumerate(counts):
        for word in counter:
            holders.setdefault(word, []).append(number)
    vocabulary = sorted(holders)
    starts, rows, weights = [0], [], []
    for word in vocabulary:
        having = holders[word]
        idf = math.log(1 + (len(documents) - len(having) + 0.5) / (len(having) + 0.5))
        for number in having:
            tf = counts[number][word]
            weights.append(idf * tf * (_K1 + 1) / (tf + _K1 * (1 - _B + _B * lengths[number] / average)))
        rows += having
        starts.append(len(rows))
    return LexicalIndex(
        {word: number for number, word in enumerate(vocabulary)},
        np.asarray(starts, dtype=np.int64),
        np.asarray(rows, dtype=np.int32),
        np.asarray(weights, dtype=np.float32),
        len(documents),
    )
