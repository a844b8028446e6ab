"""What a language model read (:mod:`oomdoc.language_model.reader`): the causes that it names, each with its quote.

Facts and statements of its reading are evidence like any other and show in the other groups; what happened, where its
word counted, in the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.messages import say

KINDS = ("model-first-high", "model-first-medium", "model-first-low", "model-second", "model-third")
"""Kinds of features that name a cause: its place among those named and, of the first, how sure the model says it is."""
_QUOTE_CHARACTERS = 90


def features(view: View) -> Iterator[Feature]:
    """``model-first-high:<cause>``, ``model-second:<cause>`` ..., and ``model-says:<cause>`` of the first."""
    reading = view.evidence.language_model
    for place, named in enumerate(reading.causes if reading is not None else ()):
        quote = named.span.text.strip()[:_QUOTE_CHARACTERS]
        message = say("feature.language-model", quote=quote)
        kind = f"model-first-{named.sure}" if place == 0 else KINDS[2 + place]
        yield Feature(f"{kind}:{named.cause}", 1.0, message, (named.span,))
        if place == 0:
            yield Feature(f"model-says:{named.cause}", 1.0, None, (named.span,))
