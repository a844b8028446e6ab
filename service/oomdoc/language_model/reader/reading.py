"""A model asked, its replies checked, the evidence with what holds: and whatever goes wrong is only said."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.evidence import Evidence, ModelReading, Source, Withheld
from oomdoc.intake.read import prepared
from oomdoc.language_model.budget import Budget
from oomdoc.language_model.client import LanguageModel, Style
from oomdoc.language_model.failing import Unavailable
from oomdoc.language_model.reader.asking import REPLY_TOKENS, Question, questions_of
from oomdoc.language_model.reader.claims import checked
from oomdoc.language_model.reader.merging import merged
from oomdoc.language_model.reader.passage import Passage
from oomdoc.messages import say

_LOG: Final = logging.getLogger("oomdoc.language-model")


Reader = Callable[[Sequence[Source], Evidence], Evidence]
"""(what was handed in, evidence read from it) -> the evidence with what a model reads in the same."""


def reading_by(model: LanguageModel) -> Reader:
    """A reader that asks the model; without it where it cannot be used."""

    def read(sources: Sequence[Source], evidence: Evidence) -> Evidence:
        how: dict[str, Any] = {"style": model.style, "context_tokens": model.context_tokens}
        passage, questions = questions_of(prepared(sources), evidence, **how)
        replies, trouble = replies_to(model, questions)
        return taken(evidence, passage, replies, trouble=trouble)

    return read


def recorded(replies: Sequence[Mapping[str, Any]], trouble: str, style: Style, context_tokens: int) -> Reader:
    """A reader of replies that were given before, in the same style."""

    def read(sources: Sequence[Source], evidence: Evidence) -> Evidence:
        passage, _ = questions_of(prepared(sources), evidence, style=style, context_tokens=context_tokens)
        return taken(evidence, passage, replies, trouble=trouble)

    return read


def replies_to(
    model: LanguageModel, questions: Sequence[Question], budget: Budget | None = None
) -> tuple[list[dict[str, Any]], str]:
    """The replies, and why there is none to the next question (empty where all were answered)."""
    budget = budget or Budget(seconds=model.timeout_s)
    replies: list[dict[str, Any]] = []
    for question in questions:
        try:
            replies.append(model.document(question.messages, question.schema, budget=budget, max_tokens=REPLY_TOKENS))
        except Unavailable as error:
            _LOG.info(json.dumps({"event": "language-model-not-used", "stage": question.part, "reason": error.reason}))
            return replies, error.reason
    return replies, ""


def taken(evidence: Evidence, passage: Passage, replies: Sequence[Mapping[str, Any]], *, trouble: str = "") -> Evidence:
    """The evidence with what of the replies stands in the passage; as it was where there is none.

    :param trouble: why a further reply is missing.
    """
    if not replies:
        return _reported(replace(evidence, language_model=ModelReading(trouble=trouble)))
    joined: dict[str, Any] = {}
    for reply in replies:
        joined |= reply
    reading = checked(joined, passage)
    if not joined.keys() & {"what", "causes", "facts", "statements"}:
        reading = replace(reading, withheld=(Withheld("reply", "form"),))
    return _reported(merged(evidence, replace(reading, trouble=trouble)))


def _reported(evidence: Evidence) -> Evidence:
    """With a warning, where something went wrong."""
    trouble = evidence.language_model.trouble if evidence.language_model is not None else ""
    if not trouble:
        return evidence
    warning = say("language-model.not-used", reason=say(f"language-model.{trouble}"))
    return replace(evidence, warnings=(*evidence.warnings, warning))
