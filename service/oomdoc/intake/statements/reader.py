"""Prose to statements: the one reader of what people say about a failure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomdoc.evidence import Span, Statement
from oomdoc.intake.linear import Linear, linear_fields, read_arrays
from oomdoc.intake.lines import Line
from oomdoc.intake.statements.concepts import concepts_of, features_of
from oomdoc.intake.statements.sentences import Sentence, parts_of, sentences_of
from oomkb.dataclass import dataclass
from oomkb.tables import read_toml

if TYPE_CHECKING:
    import numpy as np

WEIGHTS: Final = "weights.npz"


@lru_cache(maxsize=1)
def statements() -> dict[str, str]:
    """Identifier to definition, in the order of the file."""
    return {name: row["definition"] for name, row in read_toml(Path(__file__).with_name("statements.toml")).items()}


@dataclass(frozen=True, slots=True)
class Model(Linear):
    """The weights of the statements, and their calibration (``bench/train_statements.py``)."""

    calibration: tuple[float, float]
    """Log-odds: a constant, and the factor of the score."""

    def scores(self, sentences: Sequence[Collection[int]]) -> np.ndarray[Any, Any]:
        """Scores (sentences, statements), from the features of each sentence."""
        import numpy as np

        sums = [self.weights[self.known(features)].sum(axis=0) for features in sentences]
        return np.asarray(np.reshape(sums, (-1, len(self.names))) + self.bias, dtype=np.float32)

    def probabilities(self, sentences: Sequence[Collection[int]]) -> np.ndarray[Any, Any]:
        """Probabilities (sentences, statements) that a sentence says a statement."""
        return self.calibrated(self.scores(sentences))

    def calibrated(self, scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Scores to probabilities."""
        import numpy as np

        constant, factor = self.calibration
        return np.asarray(1 / (1 + np.exp(-np.clip(constant + factor * scores, -30, 30))))


@lru_cache(maxsize=1)
def model() -> Model:
    """The shipped weights, read once per process."""
    found = read_arrays(Path(__file__).with_name(WEIGHTS))
    constant, factor = found["calibration"].tolist()
    return Model(**linear_fields(found), calibration=(constant, factor))


LEAST_PROBABLE: Final = 0.3
"""Statements that are less probable are not reported."""
_MAX_SENTENCES: Final = 80
"""Parts of sentences that are read: what is said about a job is said early, and work on untrusted text is bounded."""
_CHARACTERS: Final = 20_000
"""Characters of prose that are read, for the same reason."""


def read_statements(prose: Iterable[Line], *, least: float = LEAST_PROBABLE) -> tuple[Statement, ...]:
    """What so many lines of prose say, each statement once, where it is said most surely; in the order of the text.

    :param prose: the lines whose kind is "prose" (:func:`oomdoc.intake.lines.kinds_of`), without repetitions.
    :param least: the lowest probability that is reported.
    """
    parts: list[str] = []
    owners: list[Sentence] = []
    for sentence in sentences_of(_beginning(prose)):
        for part in parts_of(sentence.text):
            parts.append(part)
            owners.append(sentence)
        if len(parts) >= _MAX_SENTENCES:
            break
    if not parts:
        return ()
    fitted = model()
    del parts[_MAX_SENTENCES:]
    probable = fitted.probabilities([features_of(part) for part in parts])
    best = probable.argmax(axis=0)
    found = []
    for column, name in enumerate(fitted.names):
        row = int(best[column])
        if (probability := float(probable[row, column])) >= least:
            text, line, start = owners[row]
            if name.endswith(_IN_VAIN) and not _tells_of_a_failure(owners, row):
                continue
            span = Span(line.source, line.number, start, text[:300])
            found.append((row, Statement(name, span, round(probability, 3))))
    return tuple(statement for _, statement in sorted(found, key=lambda pair: (pair[0], -pair[1].probability)))


_IN_VAIN: Final = "-not-help"
"""How statements end that something was of no use."""
_OF_FAILURE: Final = ("oom", "fail", "killed", "nochange", "not", "even")
"""Concepts one of which says that it was of no use, or done already, in the sentence or beside it."""


_NONE: Final = re.compile(r"\b(?:no|nothing|without)\b|[没无不]", re.IGNORECASE)


def _tells_of_a_failure(owners: Sequence[Sentence], row: int) -> bool:
    """Whether the sentence of a part, or its neighbour in the same line, has a word for failing or for no change."""
    line = owners[row].line
    near = " ".join(dict.fromkeys(one.text for one in owners[max(0, row - 2) : row + 3] if one.line is line))
    return _NONE.search(near) is not None or not concepts_of(*_OF_FAILURE).isdisjoint(features_of(near))


def _beginning(prose: Iterable[Line]) -> Iterator[Line]:
    left = _CHARACTERS
    for line in prose:
        yield line if len(line.text) <= left else line._replace(text=line.text[:left])
        left -= len(line.text)
        if left <= 0:
            return
