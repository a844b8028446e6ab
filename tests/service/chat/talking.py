"""A conversation played turn by turn."""

from __future__ import annotations

from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session


def talk(*turns: str) -> tuple[Session, list[dict]]:
    """The session at the end, and the document of each reply."""
    session, replies = Session(), []
    for turn in turns:
        session, reply = respond(session, turn)
        replies.append(reply.document())
    return session, replies


def answers_of(*turns: str) -> tuple[Session, list[str]]:
    """The session at the end, and the answer of each reply."""
    session, replies = talk(*turns)
    return session, [reply["answer"] for reply in replies]
