"""What machines printed (signs), what people and a language model say, idle settings, likeness to known cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.cases import Vote
from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say

_MIN_DEVIATION = 0.5
"""One standard deviation above the mean of the causes, from which the words are a reason to show."""


def features(view: View) -> Iterator[Feature]:
    """``sign:<cause>/<id>``, ``says:<id>``, ``words:<cause>``, ``inactive:<reason>``, ``growth:measured``."""
    evidence = view.evidence
    for sign in evidence.signs:
        quote = sign.span.quote()
        yield Feature(f"sign:{sign.name}", 1.0, say(f"sign.{sign.name.replace('/', '.')}", quote=quote), (sign.span,))
    for statement in evidence.statements:
        quote = statement.span.quote()
        message = say(f"statement.{statement.name}", quote=quote)
        yield Feature(f"says:{statement.name}", statement.probability, message, (statement.span,))
    for cause, value in evidence.cause_words.items():
        yield Feature(f"words:{cause}", value, say("feature.words") if value >= _MIN_DEVIATION else None)
    for item in evidence.inactive:
        reason = Message(item.reason, {"setting": item.setting, "line": item.span.line, **item.values})
        message = say("feature.inactive", setting=item.setting, reason=reason)
        yield Feature(f"inactive:{item.reason.removeprefix('inactive.')}", 1.0, message, (item.span,))
        yield Feature("inactive:any", 1.0, message, (item.span,))
    for signal in evidence.find("growth-over-steps"):
        yield Feature("growth:measured", 1.0, say("feature.growth"), (signal.span,))


_LEAST_SHARE: Final = 0.05
_LEAST_REST: Final = 0.02
"""So near to 1 a score decides nothing more."""
_LEAST_DEVIATION: Final = 0.5
_MAX_DEVIATION: Final = 4.0
"""Standard deviations over the causes from which, and up to which, reading like a cause's questions counts."""


def of_cases(view: View) -> Iterator[Feature]:
    """``like:<cause>``: likeness (0..1) of the most similar known case of each cause; ``reads-like:<cause>``: likeness
    to the questions that stand for a cause.
    """
    for cause, deviations in view.sounds.items():
        if deviations >= _LEAST_DEVIATION:
            yield Feature(f"reads-like:{cause}", min(deviations / _MAX_DEVIATION, 1.0), say("cause.sounds"))
    odds = {vote.case: vote.score / max(1 - vote.score, _LEAST_REST) for vote in view.votes}
    total = 1.0 + sum(odds.values())
    best: dict[str, Vote] = {}
    for vote in view.votes:
        best.setdefault(vote.cause, vote)
    for cause, vote in best.items():
        share = sum(odds[other.case] for other in view.votes if other.cause == cause) / total
        if share >= _LEAST_SHARE:
            yield Feature(f"like:{cause}", share, say("cause.case", case=vote.case, score=round(vote.score, 2)))


KINDS = ("model-first-high", "model-first-medium", "model-first-low", "model-second", "model-third")
"""Kinds of features that name a cause: its place among those named and, of the first, how sure the model says it is."""


def of_language_model(view: View) -> Iterator[Feature]:
    """``model-first-high:<cause>``, ``model-second:<cause>`` ..., and ``model-says:<cause>`` of the first.

    The causes that a language model (:mod:`oomdoc.language_model.reader`) names, each with its quote. Facts and
    statements of its reading are evidence like any other; what happened, where its word counted, shows in the outcome.
    """
    reading = view.evidence.language_model
    for place, named in enumerate(reading.causes if reading is not None else ()):
        quote = named.span.quote()
        message = say("feature.language-model", quote=quote)
        kind = f"model-first-{named.sure}" if place == 0 else KINDS[2 + place]
        yield Feature(f"{kind}:{named.cause}", 1.0, message, (named.span,))
        if place == 0:
            yield Feature(f"model-says:{named.cause}", 1.0, None, (named.span,))
