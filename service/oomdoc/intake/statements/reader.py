"""Prose to statements: the one reader of what people say about a failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from oomdoc.evidence import Span, Statement
from oomdoc.intake.lines import Line
from oomdoc.intake.statements.features import features_of
from oomdoc.intake.statements.model import model
from oomdoc.intake.statements.sentences import Sentence, parts_of, sentences_of

__all__ = ["LEAST_PROBABLE", "read_statements"]

LEAST_PROBABLE: Final = 0.3
"""Statements that are less probable are not reported."""
_MAX_SENTENCES: Final = 80
"""Parts of sentences that are read: what is said about a job is said early, and work on untrusted text is bounded."""
_CHARACTERS: Final = 20_000
"""Characters of prose that are read, for the same reason."""


def read_statements(prose: Iterable[Line], *, least: float = LEAST_PROBABLE) -> tuple[Statement, ...]:
    """What so many lines of prose say, each statement once, where it is said most surely; in the order of the text.

    :param prose: the lines whose kind is "prose" (:func:`oomdoc.intake.kinds.kinds_of`), without repetitions.
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
            found.append((row, Statement(name, _span(owners[row]), round(probability, 3))))
    return tuple(statement for _, statement in sorted(found, key=lambda pair: (pair[0], -pair[1].probability)))


def _beginning(prose: Iterable[Line]) -> Iterator[Line]:
    left = _CHARACTERS
    for line in prose:
        yield line if len(line.text) <= left else line._replace(text=line.text[:left])
        left -= len(line.text)
        if left <= 0:
            return


def _span(sentence: Sentence) -> Span:
    line = sentence.line
    return Span(line.source, line.number, sentence.column, sentence.text[:300])
