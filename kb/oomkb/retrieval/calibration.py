"""From what the views say to a probability that a case has the same cause as the failure that is asked about.

Two logistic curves, multiplied: whether the text is about a failure of memory at all (how near the nearest case is, how
much the best case shares, how much of the text is in the cases' vocabulary, in which direction its vector points), and
whether a case of that value has the right cause. The direction tells a failure of vLLM from a question about vLLM: both
are near a case of vLLM. It was fitted for one encoder; with another the other three figures decide. Fitted by
``bench/calibrate_search.py`` into ``data/calibration.toml`` and ``data/related.npz``.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from oomkb.dataclass import dataclass
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.index import Index
from oomkb.retrieval.shipped import arrays_of
from oomkb.retrieval.views import Views
from oomkb.toml_files import read_toml

__all__ = ["Calibration", "calibration", "figures_of", "relatedness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The coefficients, and the probabilities below which nothing is shown."""

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
    """Probability that the text is about a failure of memory."""
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
