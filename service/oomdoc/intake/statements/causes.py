"""Which causes the words of a report speak of: one linear score per cause over the words and concepts of its lines.

The features are those of the statements (:mod:`oomdoc.intake.statements.concepts`), weighed by how rare they are; what
is scored is what a search is made by: the person's words, then the failing lines. ``bench/fit_ranker.py --write`` fits
``causes.npz`` on labelled reports, and gives the ranker the scores of reports that a fit has not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomdoc.intake.linear import read_arrays
from oomdoc.intake.statements.concepts import features_of_items, items_of
from oomkb.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np

WEIGHTS: Final = "causes.npz"
_CHARACTERS: Final = 6000
"""Characters that are read: as many as a search is made by."""
_ITEMS: Final = 600
"""Words of a line that are read."""


@dataclass(frozen=True, slots=True)
class CauseWords:
    """The fitted scores."""

    causes: tuple[str, ...]
    features: np.ndarray[Any, Any]
    """uint32 (features,), ascending."""
    rarity: np.ndarray[Any, Any]
    """float32 (features,): log of texts over texts that hold it."""
    weights: np.ndarray[Any, Any]
    """float32 (features, causes)."""
    bias: np.ndarray[Any, Any]
    """float32 (causes,)."""

    def scores(self, found: Collection[int]) -> np.ndarray[Any, Any]:
        """Log-odds (causes,) of a text with these features, up to a constant."""
        import numpy as np

        return np.asarray(self.evidence(found) + self.bias)

    def evidence(self, found: Collection[int]) -> np.ndarray[Any, Any]:
        """What these features add to the log-odds (causes,) of a text without words."""
        import numpy as np

        held = np.array(sorted(set(found)), dtype=np.uint32)
        rows = np.searchsorted(self.features, held)
        held, rows = held[rows < len(self.features)], rows[rows < len(self.features)]
        rows = rows[self.features[rows] == held]
        rarity = self.rarity[rows]
        length = float(np.sqrt((rarity**2).sum())) or 1.0
        return np.asarray(rarity @ self.weights[rows] / length)


@lru_cache(maxsize=2)
def shipped(name: str) -> CauseWords:
    """A fit that comes with the package."""
    found = read_arrays(Path(__file__).with_name(name))
    rarity, bias = (found[part].astype("float32") for part in ("rarity", "bias"))
    return CauseWords(tuple(map(str, found["causes"])), found["features"], rarity, found["weights"], bias)


def words_of(text: str) -> set[int]:
    """The features of a text: of its distinct lines, in any order."""
    lines = dict.fromkeys(line.strip() for line in text[:_CHARACTERS].splitlines() if line.strip())
    return set().union(*(features_of_items(items_of(line), most=_ITEMS) for line in lines)) if lines else set()


def scaled(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Log-odds (..., causes) as 0..1: 0 is three below the mean of the causes, 1 five above.

    Few words stay near the middle, whatever they are: they say little.
    """
    import numpy as np

    return np.asarray(np.clip((scores - scores.mean(axis=-1, keepdims=True) + 3) / 8, 0, 1))


def read_causes(text: str) -> Mapping[str, float]:
    """Cause to what the words of a text say of it (:func:`scaled`); nothing of an empty text.

    :param text: what a search is made by: a few KB.
    """
    found = words_of(text)
    if not found:
        return {}
    fitted = shipped(WEIGHTS)
    return dict(zip(fitted.causes, scaled(fitted.evidence(found)).round(3).tolist(), strict=True))
