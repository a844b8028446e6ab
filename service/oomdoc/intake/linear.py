"""Weights of a linear classifier over numbered features, as they are shipped: eight bits, a scale for each class."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomkb.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Linear:
    """Weights of the features that were seen in learning, row by row."""

    key: str
    """The hash of the examples that it was fitted on."""
    names: tuple[str, ...]
    """The classes."""
    rows: dict[int, int]
    """Feature to row of ``weights``; other features count nothing."""
    weights: np.ndarray[Any, Any]
    """float32 (features, classes)."""
    bias: np.ndarray[Any, Any]

    def known(self, features: Collection[int]) -> list[int]:
        """The rows of those features that have one."""
        return [row for row in map(self.rows.get, features) if row is not None]


class Softmax(Linear):
    """Classes that exclude each other; what the features of one input add is divided by the root of their number."""

    __slots__ = ()

    def probabilities(self, inputs: Sequence[Collection[int]]) -> np.ndarray[Any, Any]:
        """Probabilities (inputs, classes), from the features of each input."""
        import numpy as np

        scores = np.empty((len(inputs), len(self.names)), dtype=np.float32)
        for n, features in enumerate(inputs):
            known = self.known(features)
            scores[n] = self.bias + self.weights[known].sum(axis=0) / np.sqrt(max(1, len(known)))
        scores -= scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def best(self, features: Collection[int]) -> tuple[str, float]:
        """The most probable class of one input, and its probability."""
        (row,) = self.probabilities([features])
        most = int(row.argmax())
        return self.names[most], float(row[most])


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file of weights, those of eight bits as numbers."""
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        found = dict(file)
    return found | {"weights": found["weights"].astype(np.float32) * found["scales"].astype(np.float32)}


def linear_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of :class:`Linear` in the arrays of a file."""
    import numpy as np

    return {
        "key": str(found["key"]),
        "names": tuple(str(name) for name in found["names"]),
        "rows": {int(feature): row for row, feature in enumerate(found["features"])},
        "weights": found["weights"],
        "bias": found["bias"].astype(np.float32),
    }


@cache
def softmax(path: Path) -> Softmax:
    """The weights in a file, read once per process."""
    return Softmax(**linear_fields(read_arrays(path)))
