"""What machines printed (signs), what people say (statements), and settings without effect."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.messages import Message, say

_QUOTE_CHARACTERS = 90
_MIN_DEVIATION = 0.5
"""One standard deviation above the mean of the causes, from which the words are a reason to show."""
_GROWTH_SIGNALS = ("growth-over-steps",)


def features(view: View) -> Iterator[Feature]:
    """``sign:<cause>/<id>``, ``says:<id>``, ``words:<cause>``, ``inactive:<reason>``, ``growth:measured``."""
    evidence = view.evidence
    for sign in evidence.signs:
        quote = sign.span.text.strip()[:_QUOTE_CHARACTERS]
        yield Feature(f"sign:{sign.name}", 1.0, say(f"sign.{sign.name.replace('/', '.')}", quote=quote), (sign.span,))
    for statement in evidence.statements:
        quote = statement.span.text.strip()[:_QUOTE_CHARACTERS]
        message = say(f"statement.{statement.name}", quote=quote)
        yield Feature(f"says:{statement.name}", statement.probability, message, (statement.span,))
    for cause, value in evidence.cause_words.items():
        yield Feature(f"words:{cause}", value, say("feature.words") if value >= _MIN_DEVIATION else None)
    for item in evidence.inactive:
        reason = Message(item.reason, {"setting": item.setting, "line": item.span.line, **item.values})
        message = say("feature.inactive", setting=item.setting, reason=reason)
        yield Feature(f"inactive:{item.reason.removeprefix('inactive.')}", 1.0, message, (item.span,))
        yield Feature("inactive:any", 1.0, message, (item.span,))
    for signal in evidence.find(*_GROWTH_SIGNALS):
        yield Feature("growth:measured", 1.0, say("feature.growth"), (signal.span,))
