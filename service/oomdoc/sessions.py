"""A turn of a stored conversation, for the doors that keep sessions: HTTP and the messengers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oomdoc.chat.conversation import respond
from oomdoc.chat.language_model import LanguageModel
from oomdoc.chat.session import Reply, Session
from oomdoc.store.store import Conflict, Store, StoreDown
from oomkb.errors import InputError

__all__ = ["answer"]

_TRIES = 3


def answer(
    store: Callable[[], Store], identifier: str, text: str, *, new: bool = False, model: LanguageModel | None = None
) -> dict[str, Any]:
    """Answer one turn of the session ``identifier``; the contract's reply with ``session``.

    Where another replica answers a turn of the same session meanwhile, this one is answered again from the newer
    state. A store that is down still gets an answer to a first turn, with a warning that it cannot go on.

    :param model: may put the answer in other words and read what the grammar did not; off by default.
    :raises InputError: for a session that does not exist (any more), unless ``new``.
    """
    for attempt in range(_TRIES):
        try:
            kept = store().chat(identifier)
            if kept is None and not new:
                raise InputError("no such chat", where=f"session {identifier}", hint="begin one without session")
            session = Session.from_document(kept[0]) if kept else Session()
            session, reply = _turn(session, text, model)
            store().save_chat(identifier, session.document(), version=kept[1] if kept else 0)
        except Conflict:
            if attempt == _TRIES - 1:
                raise
            continue
        except StoreDown:
            if not new:
                raise
            _, reply = _turn(Session(), text, model)
            return reply.document() | {"session": None, "warnings": ["not kept: the store does not answer"]}
        return reply.document() | {"session": identifier}
    raise AssertionError("unreachable")


def _turn(session: Session, text: str, model: LanguageModel | None) -> tuple[Session, Reply]:
    if model is None:
        return respond(session, text)
    session, reply = respond(session, text, model.changes)
    return session, replace(reply, answer=model.rephrase(reply.answer, text, session.language))
