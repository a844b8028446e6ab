"""How reports of each cause are worded: a linear model over a report's vector and its words.

Learned from public threads by ``bench/train_wording.py`` (of each thread its link, its cause, its words without their
order and its vector are kept there) and from the symptoms of the case records. It knows no sizes, versions or counts:
those are for the rules. The weights belong to one embedding model; with another one there is no opinion.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from oomkb.retrieval.shipped import arrays_of

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Wording", "opinions_of", "shipped", "tokens"]

_TOKEN: Final = re.compile(r"[a-z_][a-z0-9_.]*[a-z0-9_]|[\u4e00-\u9fff]{2}")
_ENOUGH: Final = 40
"""Different known words, from which on a text is as long as those that were learned from."""
_FLOOR: Final = -4.5
"""The least log-probability: what a word model thinks impossible may be true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The weights: rows are causes."""

    key: str
    """The embedding model they belong to (:attr:`oomkb.retrieval.embed.Encoder.key`)."""
    causes: tuple[str, ...]
    words: Mapping[str, int]
    idf: np.ndarray[Any, Any]
    """(words,) inverse document frequencies."""
    word_weights: np.ndarray[Any, Any]
    """(causes, words)."""
    vector_weights: np.ndarray[Any, Any]
    """(causes, dimension)."""
    bias: np.ndarray[Any, Any]
    """(causes,)."""

    def opinions(self, vector: np.ndarray[Any, Any], said: Iterable[str]) -> dict[str, float]:
        """Log-probability of each cause, at least -4.5, for a text with this unit vector and these tokens.

        Of a text with few known words the opinion is drawn to one that is like all causes.
        """
        import numpy as np

        columns, values = self.weighed(said)
        sure = min(1.0, len(columns) / _ENOUGH)
        logits = self.word_weights[:, columns] @ values + self.vector_weights @ vector + self.bias
        chances = logits - logits.max()
        chances -= np.log(np.exp(chances).sum())
        chances = sure * chances - (1 - sure) * np.log(len(self.causes))
        return dict(zip(self.causes, np.maximum(chances, _FLOOR).tolist(), strict=True))

    def weighed(self, said: Iterable[str]) -> tuple[list[int], np.ndarray[Any, Any]]:
        """Columns of the known words and their weights: (1 + log count) x idf, of length one together."""
        import numpy as np

        counts = Counter(word for word in said if word in self.words)
        columns = [self.words[word] for word in counts]
        values = np.asarray([1.0 + np.log(n) for n in counts.values()], dtype=np.float32) * self.idf[columns]
        length = float(np.sqrt((values**2).sum())) if columns else 0.0
        return columns, values / length if length else values


@lru_cache(maxsize=1)
def tokens(english: str) -> tuple[str, ...]:
    """The words of a text in which slang and Chinese were made English and figures left out, lower-case.

    The wording and the table of threads ask for those of one report, one after the other.
    """
    return tuple(_TOKEN.findall(english.lower()))


def opinions_of(key: str, vector: np.ndarray[Any, Any], english: str) -> dict[str, float]:
    """Log-probability of each cause, or nothing where the shipped weights belong to another embedding model."""
    wording = shipped()
    return wording.opinions(vector, tokens(english)) if wording.key == key else {}


@lru_cache(maxsize=1)
def shipped() -> Wording:
    """The weights that come with the package."""
    import numpy as np

    arrays = arrays_of("wording")
    return Wording(
        key=str(arrays["key"]),
        causes=tuple(str(name) for name in arrays["causes"]),
        words={str(word): column for column, word in enumerate(arrays["words"])},
        idf=arrays["idf"].astype(np.float32),
        word_weights=arrays["word_weights"].astype(np.float32),
        vector_weights=arrays["vector_weights"].astype(np.float32),
        bias=arrays["bias"].astype(np.float32),
    )
