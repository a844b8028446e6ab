"""Likeness to known cases, by cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.cases import Vote
from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.messages import say

_LEAST_SHARE: Final = 0.05
_LEAST_REST: Final = 0.02
"""So near to 1 a score decides nothing more."""
_LEAST_DEVIATION: Final = 0.5
_MAX_DEVIATION: Final = 4.0
"""Standard deviations over the causes from which, and up to which, reading like a cause's questions counts."""


def features(view: View) -> Iterator[Feature]:
    """``like:<cause>``: likeness (0..1) of the most similar known case of each cause; ``reads-like:<cause>``: likeness
    to the questions that stand for a cause; ``known-case:<cause>``: the text holds a case's symptoms word for word.
    """
    for cause, deviations in view.sounds.items():
        if deviations >= _LEAST_DEVIATION:
            yield Feature(f"reads-like:{cause}", min(deviations / _MAX_DEVIATION, 1.0), say("cause.sounds"))
    odds = {vote.case: vote.score / max(1 - vote.score, _LEAST_REST) for vote in view.votes}
    total = 1.0 + sum(odds.values())
    best: dict[str, Vote] = {}
    for vote in view.votes:
        if vote.retold:
            yield Feature(f"known-case:{vote.cause}", 1.0, say("cause.retold", case=vote.case))
        best.setdefault(vote.cause, vote)
    for cause, vote in best.items():
        share = sum(odds[other.case] for other in view.votes if other.cause == cause) / total
        if share >= _LEAST_SHARE:
            yield Feature(f"like:{cause}", share, say("cause.case", case=vote.case, score=round(vote.score, 2)))
