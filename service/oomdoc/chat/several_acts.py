"""A turn that does several things, part by part: what decides something first, then each of its questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from oomdoc.chat.acts import decides, explains, in_two
from oomdoc.chat.context import Context
from oomdoc.chat.grammar import LONGEST_TURN, Turn
from oomdoc.chat.history import context_of
from oomdoc.chat.measures import asks_to_compare
from oomdoc.chat.parts import joined
from oomdoc.chat.session import Reply, Session
from oomdoc.chat.turn_words import acts_of
from oomdoc.intake.several import several_questions, statement_and_question
from oomdoc.report.words import word

Answer = Callable[[Session, str, Context], tuple[Session, Reply]]
"""(session, one part, context) → (session, reply)."""
_LEAST_SUPPOSED: Final = 0.6
"""Probability that a turn as a whole supposes something, from which no part of it decides."""
_LINES: Final = 2
"""Lines of the answer to a further question."""


def in_order(session: Session, text: str, context: Context, answer: Answer) -> tuple[Session, Reply]:
    """The parts of a turn answered in their order: "use it. And 128k?", "no offload. Does int4 fit? And fp8?"."""
    if len(text) > LONGEST_TURN or asks_to_compare(text):
        return answer(session, text, context)
    several = several_questions(text)
    if several is None or several.numbered:
        return _decided_first(session, text, context, answer)
    session, reply = _decided_first(session, several.first, context, answer)
    said, changed = reply.answer.split("\n"), dict(reply.changed)
    for question in several.further:
        session, more = answer(session, question, context_of(session))
        lines = _heard(more.answer, session.language)
        if not lines:
            continue
        whole = "```" in more.answer or explains(Turn("ask"), question)
        new = [line for line in (lines if whole else lines[:_LINES]) if line not in said]
        said += new
        changed |= more.changed
    return session, replace(reply, answer=joined(said) if "```" not in said else "\n".join(said), changed=changed)


def _decided_first(session: Session, text: str, context: Context, answer: Answer) -> tuple[Session, Reply]:
    said, question = statement_and_question(text)
    if said and acts_of(text)["whatif"] < _LEAST_SUPPOSED and decides(session, said, context):
        decided, done = answer(session, said, context)
        after, reply = answer(decided, question, context_of(decided))
        return after, _of_both(done, reply, after.language)
    if (parts := in_two(text)) is None:
        return answer(session, text, context)
    decided, done = answer(session, parts[0], context)
    after, reply = answer(decided, parts[1], context_of(decided))
    if reply.answer.startswith(word("chat.off-topic", after.language)):
        return answer(session, text, context)  # a part that says nothing without the other
    return after, _of_both(done, reply, after.language, holds=bool(after.held - session.held))


def _of_both(done: Reply, reply: Reply, language: str, *, holds: bool = False) -> Reply:
    """The reply to a turn of two parts: the second answer, behind what the first did where it gives no figure.

    :param holds: whether something may not change from now on, which the first part's first line says.
    """
    first, second = done.answer.split("\n"), reply.answer
    if holds:
        second = joined([first[0], *second.split("\n")])
    elif done.changed and "GiB" not in second:
        second = "\n".join([*first[:_LINES], second])
    changed = {**done.changed, **reply.changed}
    # A part from which nothing was read says so only where the other did nothing.
    heard = _heard(second, language) if changed and "```" not in second else []
    return replace(reply, answer="\n".join(heard) or second, changed=changed)


def _heard(text: str, language: str) -> list[str]:
    """The lines of an answer without those that say that nothing was read."""
    unheard = (word("chat.unheard", language), word("chat.off-topic", language))
    return [line for line in text.split("\n") if not line.startswith(unheard)]
