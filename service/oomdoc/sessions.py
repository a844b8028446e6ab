"""A turn of a stored conversation, for the doors that keep sessions: HTTP and the messengers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from oomdoc.chat.conversation import respond
from oomdoc.chat.language_model import changes, rephrase
from oomdoc.chat.session import Session
from oomdoc.intake.redact import mask
from oomdoc.language_model import LanguageModel
from oomdoc.store.store import Conflict, Store, StoreDown
from oomkb.errors import InputError

__all__ = ["answer"]

_TRIES = 3


TurnTaken = tuple[dict[str, Any], dict[str, Any]]
Turn = Callable[[dict[str, Any] | None, str], TurnTaken]
"""(a stored session, or ``None``, and a text) -> the session afterwards and the contract's reply."""


def answer(
    store: Callable[[], Store],
    identifier: str,
    text: str,
    *,
    new: bool = False,
    model: LanguageModel | None = None,
    turn: Turn | None = None,
) -> dict[str, Any]:
    """Answer one turn of the session ``identifier``; the contract's reply with ``session``.

    Where another replica answers a turn of the same session meanwhile, this one is answered again from the newer
    state. A store that is down still gets an answer to a first turn, with a warning that it cannot go on.

    :param model: may put the answer in other words and read what the grammar did not; off by default.
    :param turn: works a turn out elsewhere, where no ``model`` has to be asked on the way.
    :raises InputError: for a session that does not exist (any more), unless ``new``.
    """
    take = _turn(model) if model is not None or turn is None else turn
    for attempt in range(_TRIES):
        try:
            kept = store().chat(identifier)
            if kept is None and not new:
                raise InputError("no such chat", where=f"session {identifier}", hint="begin one without session")
            session, reply = take(kept[0] if kept else None, text)
            store().save_chat(identifier, session, version=kept[1] if kept else 0)
        except Conflict:
            if attempt == _TRIES - 1:
                raise
            continue
        except StoreDown:
            if not new:
                raise
            _, reply = take(None, text)
            return reply | {"session": None, "warnings": ["not kept: the store does not answer"]}
        return reply | {"session": identifier}
    raise AssertionError("unreachable")


def _turn(model: LanguageModel | None) -> Turn:
    def take(kept: dict[str, Any] | None, text: str) -> TurnTaken:
        session, text = Session.from_document(kept) if kept else Session(), mask(text).text
        if model is None:
            session, reply = respond(session, text)
        else:
            session, reply = respond(session, text, partial(changes, model))
            reply = replace(reply, answer=rephrase(model, reply.answer, text, session.language))
        return session.document(), reply.document()

    return take
