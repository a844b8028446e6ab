"""BM25 over search words, kept as plain arrays that open in milliseconds.

Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", with the
idf that never turns negative.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LexicalIndex", "build_lexical", "open_lexical"]

_K1: Final = 1.2
_B: Final = 0.6


@dataclass(frozen=True, slots=True)
class LexicalIndex:
    """Word -> the documents that hold it, with what each occurrence is worth."""

    words: dict[str, int]
    starts: np.ndarray[Any, Any]
    documents: np.ndarray[Any, Any]
    worth: np.ndarray[Any, Any]
    size: int

    def scores(self, query: Iterable[str]) -> np.ndarray[Any, Any]:
        """float32 per document. A word counts once, however often a log repeats it."""
        import numpy as np

        total = np.zeros(self.size, dtype=np.float32)
        for word in dict.fromkeys(query):
            number = self.words.get(word)
            if number is not None:
                span = slice(self.starts[number], self.starts[number + 1])
                total[self.documents[span]] += self.worth[span]
        return total

    def shared(self, query: Iterable[str], document: int, count: int) -> list[str]:
        """The words that spoke most for this document, best first: the reason to show."""
        import numpy as np

        found = []
        for word in dict.fromkeys(query):
            number = self.words.get(word)
            if number is None:
                continue
            begin, end = int(self.starts[number]), int(self.starts[number + 1])
            at = begin + int(np.searchsorted(self.documents[begin:end], document))
            if at < end and self.documents[at] == document:
                found.append((-float(self.worth[at]), word))
        return [word for _, word in sorted(found)[:count]]

    def save(self, folder: Path, name: str) -> None:
        """Write it as ``NAME.json`` and ``NAME.npz``."""
        import numpy as np

        words = json.dumps({"size": self.size, "words": list(self.words)}, ensure_ascii=False)
        (folder / f"{name}.json").write_text(words, encoding="utf-8")
        np.savez(folder / f"{name}.npz", starts=self.starts, documents=self.documents, worth=self.worth)


def open_lexical(folder: Path, name: str) -> LexicalIndex:
    """What :meth:`LexicalIndex.save` wrote."""
    import numpy as np

    head = json.loads((folder / f"{name}.json").read_bytes())
    words = {word: number for number, word in enumerate(head["words"])}
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return LexicalIndex(words, arrays["starts"], arrays["documents"], arrays["worth"], head["size"])


def build_lexical(documents: Sequence[Sequence[str]]) -> LexicalIndex:
    """The index of documents that are given as their search words; a field counts more by being repeated."""
    import numpy as np

    counts = [Counter(words) for words in documents]
    lengths = [sum(c.values()) for c in counts]
    average = max(1.0, sum(lengths) / max(1, len(lengths)))
    holders: dict[str, list[int]] = {}
    for number, counter in enumerate(counts):
        for word in counter:
            holders.setdefault(word, []).append(number)
    vocabulary = sorted(holders)
    starts, rows, worth = [0], [], []
    for word in vocabulary:
        having = holders[word]
        idf = math.log(1 + (len(documents) - len(having) + 0.5) / (len(having) + 0.5))
        for number in having:
            tf = counts[number][word]
            worth.append(idf * tf * (_K1 + 1) / (tf + _K1 * (1 - _B + _B * lengths[number] / average)))
        rows += having
        starts.append(len(rows))
    return LexicalIndex(
        {word: number for number, word in enumerate(vocabulary)},
        np.asarray(starts, dtype=np.int64),
        np.asarray(rows, dtype=np.int32),
        np.asarray(worth, dtype=np.float32),
        len(documents),
    )
