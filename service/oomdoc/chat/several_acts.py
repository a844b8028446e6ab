"""A turn that does several things, part by part: what decides something first, then each of its questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from oomdoc.chat.acts import decides, explains, in_two
from oomdoc.chat.context import Context
from oomdoc.chat.grammar import LONGEST_TURN, Turn
from oomdoc.chat.history import context_of
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
    if len(text) > LONGEST_TURN:
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
        session, done = answer(session, said, context)
        session, reply = answer(session, question, context_of(session))
        return session, _of_both(done, reply, _both(done, reply), session.language)
    if (parts := in_two(text)) is None:
        return answer(session, text, context)
    before = session
    session, done = answer(session, parts[0], context)
    session, reply = answer(session, parts[1], context_of(session))
    if reply.answer.startswith(word("chat.off-topic", session.language)):
        return answer(before, text, context)  # a part that says nothing without the other
    kept = done.answer.split("\n")[:1] if session.held - before.held else []
    answer_of_both = joined([*kept, *reply.answer.split("\n")]) if kept else _both(done, reply)
    return session, _of_both(done, reply, answer_of_both, session.language)


def _of_both(done: Reply, reply: Reply, text: str, language: str) -> Reply:
    """The reply to a turn of two parts; one that nothing was read from says so only where the other did nothing."""
    did = done.changed or reply.changed
    lines = _heard(text, language) if did and "```" not in text else []
    answer = "\n".join(lines) if lines else text
    return replace(reply, answer=answer, changed={**done.changed, **reply.changed})


def _heard(text: str, language: str) -> list[str]:
    """The lines of an answer without those that say that nothing was read."""
    unheard = (word("chat.unheard", language), word("chat.off-topic", language))
    return [line for line in text.split("\n") if not line.startswith(unheard)]


def _both(done: Reply, reply: Reply) -> str:
    """The answer to what is asked, behind what a change did where the answer has no figure of the run."""
    if not done.changed or "GiB" in reply.answer:
        return reply.answer
    return "\n".join([*done.answer.split("\n")[:_LINES], reply.answer])
