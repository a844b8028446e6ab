"""A model asked, its replies checked, the evidence with what holds: and whatever goes wrong is only said."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from oomdoc.evidence import Evidence, Fact, Failure, ModelReading, Outcome, Source, Statement, Withheld, say
from oomdoc.intake.outcomes import failure_of
from oomdoc.intake.read import prepared
from oomdoc.language_model.client import LanguageModel, Style
from oomdoc.language_model.failing import Budget, Unavailable
from oomdoc.language_model.reader.asking import REPLY_TOKENS, Question, questions_of
from oomdoc.language_model.reader.claims import checked
from oomdoc.language_model.reader.passage import Passage

_GUESSED: Final = 0.9
"""Confidence below which a value that prose suggests gives way."""
_SUPPOSED: Final = 0.6
"""Confidence up to which an outcome is supposed from what people say of memory, no failure having been read."""
_EXPLAINED: Final = 0.75
"""Confidence up to which another failure is one that merely follows, or any error."""


def merged(evidence: Evidence, reading: ModelReading) -> Evidence:
    """The evidence with the reading in it."""
    facts = dict(evidence.facts)
    for fact in reading.facts:
        known = facts.get(fact.name)
        if known is None or _gives_way(known, fact, evidence.root):
            facts[fact.name] = _placed(fact, known)
    outcome, failures = _happened(evidence, reading.outcome)
    return replace(
        evidence,
        facts=MappingProxyType(facts),
        statements=_joined(evidence.statements, reading.statements),
        outcome=outcome,
        failures=failures,
        language_model=reading,
    )


def _gives_way(known: Fact, fact: Fact, root: Failure | None) -> bool:
    """Whether what was read gives way to what the model read.

    No line but the failing message states a phase; what frames and words show of it is a reading, as the model's is.
    """
    if fact.name == "phase":
        return root is None or known.span != root.signal.span or known.confidence < _GUESSED
    return not known.stated or (known.origin == "prose" and known.confidence < _GUESSED and known.value != fact.value)


def _placed(fact: Fact, known: Fact | None) -> Fact:
    """A fact that has no quote (an unknown phase) stands where the known one does."""
    return replace(fact, span=known.span) if known is not None and not fact.span.source else fact


def _joined(read: tuple[Statement, ...], added: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Every statement once, the surer one."""
    found = {one.name: one for one in read}
    for one in added:
        known = found.get(one.name)
        if known is None or known.probability < one.probability:
            found[one.name] = one
    return tuple(found.values())


def _happened(evidence: Evidence, read: Outcome | None) -> tuple[Outcome | None, tuple[Failure, ...]]:
    """What happened, and the failures: the model's word counts where nothing, or nothing certain, was seen."""
    known, failures = evidence.outcome, evidence.failures
    if read is None or not _open_to(known, read):
        return known, failures
    if not read.fails:
        return read, ()
    failure = failure_of(read)
    return read, failures if failure is None else (failure, *failures)


def _open_to(known: Outcome | None, read: Outcome) -> bool:
    if known is None or known.confidence < 0.5:
        return True
    if not known.fails:
        return read.fails
    if known.kind == "said":
        return known.confidence <= _SUPPOSED and read.kind != "said"
    return known.kind == "other" and known.confidence <= _EXPLAINED and read.memory is not None


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
