"""Whether a person complains of memory, asks about it, or writes of something else.

"How much does a 7B need?" is answered by an estimate, "how is a 1.1B model using 13 gigs?" by a cause, and no single
word separates the two. A linear model over words and concepts does, fitted by ``bench/train_complaints.py`` on texts
written for this project and on the words of labelled reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from oomdoc.evidence import Span
from oomdoc.intake.lines import Line
from oomdoc.intake.polarity import is_hypothetical
from oomdoc.intake.statements.causes import shipped, words_of
from oomdoc.intake.statements.sentences import sentences_of

WEIGHTS: Final = "complaints.npz"
CLASSES: Final = ("question", "complaint", "other", "solved")
"""A question about memory, a complaint of memory, what is not about memory, and word that all is well now."""
_CHARACTERS: Final = 6000
"""Characters of prose that are read."""
_LEAST_OF_SENTENCE: Final = 0.3
"""Probability of a complaint that one sentence by itself must have."""
_QUOTED: Final = 300
"""Characters of a sentence that are shown."""


class Asked(NamedTuple):
    """Probabilities of what a person writes, and the sentence that complains most."""

    question: float
    complaint: float
    other: float
    solved: float
    complains: Span | None
    """``None`` where every sentence only supposes a lack of memory."""


def read_asked(prose: Iterable[Line]) -> Asked | None:
    """What so many lines of prose are; ``None`` where they hold no words.

    :param prose: the lines whose kind is "prose", without repetitions.
    """
    lines = []
    left = _CHARACTERS
    for line in prose:
        if left > 0:
            lines.append(line)
        left -= len(line.text)
    whole = words_of("\n".join(line.text for line in lines))
    if not whole:
        return None
    question, complaint, other, solved = _probabilities(whole)
    found = Asked(question, complaint, other, solved, None)
    if found.complaint <= found.question:
        return found
    said = ((sentence, words_of(sentence.text)) for sentence in sentences_of(lines))
    real = [(sentence, words) for sentence, words in said if words and not is_hypothetical(sentence.text)]
    most = max(((_probabilities(words)[1], n) for n, (_, words) in enumerate(real)), default=(0.0, 0))
    if most[0] < _LEAST_OF_SENTENCE:
        return found
    text, line, column = real[most[1]][0]
    return found._replace(complains=Span(line.source, line.number, column, text[:_QUOTED]))


def _probabilities(words: set[int]) -> tuple[float, ...]:
    scores = shipped(WEIGHTS).scores(words)
    odds = [math.exp(float(score - scores.max())) for score in scores]
    return tuple(one / sum(odds) for one in odds)
