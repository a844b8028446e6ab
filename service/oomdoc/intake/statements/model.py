"""The fitted weights: features of a sentence to a calibrated probability per statement.

One linear score per statement, then one calibration (a constant and a factor of the log-odds) for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from oomkb.dataclass import dataclass

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
    calibration: tuple[float, float]
    """Log-odds: a constant, and the factor of the score."""

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

        constant, factor = self.calibration
        return np.asarray(1 / (1 + np.exp(-np.clip(constant + factor * scores, -30, 30))))


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
            calibration=(float(found["calibration"][0]), float(found["calibration"][1])),
        )
