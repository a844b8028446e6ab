"""Which public thread a report tells of: the same words and the same figures.

Of each thread that was read and labelled the package holds the link, the causes, and how often which words and figures
stand in it, not in which order; ``bench/known_threads.py`` writes the table. Of 121 threads that two people condensed
apart from each other, 117 were found by the other's text before all others among 1,241, half of them with a likeness
of 0.83 and four in five of 0.69; reports of different threads that are alike by 0.6 share their cause in four of five.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Final

import numpy as np

from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.kept import lazy
from oomkb.retrieval.dense import Array
from oomkb.retrieval.lexical import spans_of

_FIGURE: Final = lazy(r"(?<!\d)\d{1,15}(?:\.\d{1,9})?(?!\d)")
_TOKEN: Final = lazy(r"[a-z_][a-z0-9_.]*[a-z0-9_]|[\u4e00-\u9fff]{2}")
_MIN_FIGURE_CHARS: Final = 3
"""Characters of a figure that tells threads apart: 8 GPUs or a batch of 16 are everybody's."""
_MIN_MARKS: Final = 12
"""Different marks of a text that can be told apart: three words are in some thread always."""
_MIN_LIKENESS: Final = 0.3
"""Likeness under which two reports have nothing to do with each other."""


def arrays_of(name: str) -> dict[str, Array]:
    """The arrays of ``data/<name>.npz`` by their names; nothing in it is unpickled, and every part has its checksum.

    :raises OomdocError: for a damaged file.
    """
    try:
        with (files("oomkb.retrieval") / "data" / f"{name}.npz").open("rb") as file:
            return dict(np.load(file, allow_pickle=False).items())
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise OomdocError(
            "a table of the package is damaged", where=f"{name}.npz", hint="install oomdoc again"
        ) from error


@dataclass(frozen=True, slots=True)
class KnownThread:
    """A public thread and how alike a text is to it."""

    url: str
    cause: str
    also: tuple[str, ...]
    likeness: float
    """Cosine of the two texts' marks, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """The threads by their marks: for each mark, the threads that hold it and what it weighs there."""

    urls: Sequence[str]
    causes: Sequence[str]
    also: Sequence[str]
    """Further causes, joined by commas."""
    marks: Mapping[str, int]
    rarity: Array
    """(marks,) inverse document frequencies."""
    starts: Array
    """(marks + 1,) where each mark's entries begin in ``holders`` and ``weights``."""
    holders: Array
    weights: Array
    """Of each thread's entries the squares sum to one."""

    def like(self, said: Iterable[str], top: int = 3) -> tuple[KnownThread, ...]:
        """The threads most like a text with these marks, at least 0.3, best first; none for a text of few marks."""
        counts = Counter(said)
        if len(counts) < _MIN_MARKS:
            return ()
        unknown = math.log(1 + len(self.urls))
        likeness = np.zeros(len(self.urls), dtype=np.float32)
        squares, columns, weights = 0.0, [], []
        for mark, count in counts.items():
            column = self.marks.get(mark)
            weight = (1 + math.log(count)) * (unknown if column is None else float(self.rarity[column]))
            squares += weight * weight
            if column is not None:
                columns.append(column)
                weights.append(weight)
        owners, places = spans_of(self.starts, np.asarray(columns, dtype=np.int64))
        # One after the other, as the marks come: single precision adds up to something else in another order.
        np.add.at(likeness, self.holders[places], np.asarray(weights, dtype=np.float32)[owners] * self.weights[places])
        if squares:
            likeness /= math.sqrt(squares)
        best = np.argsort(-likeness, kind="stable")[:top]
        return tuple(self._known(int(row), float(likeness[row])) for row in best if likeness[row] >= _MIN_LIKENESS)

    def _known(self, row: int, likeness: float) -> KnownThread:
        also = tuple(filter(None, self.also[row].split(",")))
        return KnownThread(self.urls[row], self.causes[row], also, likeness)


def marks(text: str, english: str) -> list[str]:
    """What a text is known by: the words of its English form and the longer figures of the text itself."""
    return [
        *_TOKEN.findall(english.lower()),
        *(figure for figure in _FIGURE.findall(text) if len(figure) >= _MIN_FIGURE_CHARS),
    ]


def likenesses(text: str, english: str) -> tuple[KnownThread, ...]:
    """The shipped threads that a report is most like.

    :param english: the text as :func:`oomkb.retrieval.views.plain_words` gives it.
    """
    return shipped().like(marks(text, english))


@lru_cache(maxsize=1)
def shipped() -> Threads:
    """The table that comes with the package."""
    arrays = arrays_of("threads")
    return Threads(
        urls=arrays["urls"].tolist(),
        causes=arrays["causes"].tolist(),
        also=arrays["also"].tolist(),
        marks={mark: column for column, mark in enumerate(arrays["marks"].tolist())},
        rarity=arrays["rarity"].astype(np.float32),
        starts=arrays["starts"],
        holders=arrays["holders"].astype(np.int32),
        weights=arrays["weights"].astype(np.float32),
    )
