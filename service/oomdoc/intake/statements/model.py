"""The fitted weights: features of a sentence to a calibrated probability per statement.

One linear score per statement, then one calibration for all of them: a score counts for less where another
statement's is close to it, because a sentence seldom says two things.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

__all__ = ["WEIGHTS", "Model", "model"]

WEIGHTS: Final = "weights.npz"


@dataclass(frozen=True, slots=True)
class Model:
    """Weights of the features that were seen in learning, row by row, and the calibration."""

    key: str
    """The hash of the examples that it was fitted on (:func:`catalogue.examples_hash`)."""
    names: tuple[str, ...]
    rows: dict[int, int]
    """Feature to row of ``weights``; other features count nothing."""
    weights: np.ndarray[Any, Any]
    """float32 (features, statements)."""
    bias: np.ndarray[Any, Any]
    calibration: tuple[float, float, float]
    """Of the logit: constant, factor of the score, factor of its lead over the best other score."""

    def scores(self, sentences: Sequence[Collection[int]]) -> np.ndarray[Any, Any]:
        """Scores (sentences, statements), from the features of each sentence."""
        import numpy as np

        known = [[self.rows[f] for f in features if f in self.rows] for features in sentences]
        starts = np.cumsum([0, *(len(rows) for rows in known[:-1])])
        flat = [row for rows in known for row in rows]
        sums = np.zeros((len(known), len(self.names)), dtype=np.float32)
        filled = np.array([bool(rows) for rows in known], dtype=bool)
        if flat:
            sums[filled] = np.add.reduceat(self.weights[flat], starts[filled], axis=0)
        return np.asarray(sums + self.bias)

    def probabilities(self, sentences: Sequence[Collection[int]]) -> np.ndarray[Any, Any]:
        """Probabilities (sentences, statements) that a sentence says a statement."""
        import numpy as np

        if not sentences:
            return np.zeros((0, len(self.names)), dtype=np.float32)
        return self.calibrated(self.scores(sentences))

    def calibrated(self, scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Scores to probabilities."""
        import numpy as np

        constant, factor, lead_factor = self.calibration
        logits = constant + factor * scores + lead_factor * lead(scores)
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))


def lead(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How far each score is ahead of (below zero: behind) the best other one, at most 6."""
    import numpy as np

    two = np.partition(scores, -2, axis=1)[:, -2:]
    best_other = np.where(scores >= two[:, 1:], two[:, :1], two[:, 1:])
    return np.asarray(np.clip(scores - best_other, -6, 6))


@lru_cache(maxsize=1)
def model() -> Model:
    """The shipped weights, read once per process."""
    import numpy as np

    with (files(__package__) / WEIGHTS).open("rb") as file, np.load(file, allow_pickle=False) as found:
        return Model(
            key=str(found["key"]),
            names=tuple(str(name) for name in found["names"]),
            rows={int(feature): row for row, feature in enumerate(found["features"])},
            weights=found["weights"].astype(np.float32) * found["scales"].astype(np.float32),
            bias=found["bias"].astype(np.float32),
            calibration=tuple(float(value) for value in found["calibration"]),  # type: ignore[arg-type]
        )
