"""A turn of a stored conversation, for the interfaces that keep sessions: HTTP and the messengers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from oomdoc.assistant.tool_loop import Turned, converse
from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session
from oomdoc.intake.redact import mask
from oomdoc.language_model import LanguageModel
from oomdoc.store.store import Conflict, Store, StoreDown
from oomkb.errors import InputError

_TRIES = 3


TurnTaken = tuple[dict[str, Any], dict[str, Any]]
Turn = Callable[[dict[str, Any] | None, str], TurnTaken]
"""(a stored session, or ``None``, and a text) -> the session afterwards and the contract's reply."""
Taking = Callable[[dict[str, Any] | None, str], Iterator["str | TurnTaken"]]
"""The same, with the pieces of the answer before it."""


def answer(
    store: Callable[[], Store],
    identifier: str,
    text: str,
    *,
    new: bool = False,
    model: LanguageModel | None = None,
    turn: Turn | None = None,
) -> dict[str, Any]:
    """Answer one turn of the session ``identifier`` as a whole; see :func:`answering`."""
    *_, last = answering(store, identifier, text, new=new, model=model, turn=turn)
    assert isinstance(last, dict)
    return last


def answering(
    store: Callable[[], Store],
    identifier: str,
    text: str,
    *,
    new: bool = False,
    model: LanguageModel | None = None,
    turn: Turn | None = None,
) -> Iterator[str | dict[str, Any]]:
    """Answer one turn of the session ``identifier``: pieces of the answer, then the contract's reply with ``session``.

    Where another replica answers a turn of the same session meanwhile, this one is answered again from the newer
    state; the reply is then what counts, not the pieces. A store that is down still gets an answer to a first turn,
    with a warning that it cannot go on.

    :param model: converses with oomdoc's functions (:mod:`oomdoc.assistant.tool_loop`); off by default.
    :param turn: works a turn out elsewhere, where no ``model`` has to be asked on the way.
    :raises InputError: for a session that does not exist (any more), unless ``new``.
    """
    take = _taking(model) if model is not None or turn is None else _elsewhere(turn)
    for attempt in range(_TRIES):
        try:
            kept = store().chat(identifier)
            if kept is None and not new:
                raise InputError("no such chat", where=f"session {identifier}", hint="begin one without session")
            session, reply = yield from _taken(take(kept[0] if kept else None, text), silent=attempt > 0)
            store().save_chat(identifier, session, version=kept[1] if kept else 0)
        except Conflict:
            if attempt == _TRIES - 1:
                raise
            continue
        except StoreDown:
            if not new:
                raise
            _, reply = yield from _taken(take(None, text), silent=attempt > 0)
            yield reply | {"session": None, "warnings": ["not kept: the store does not answer"]}
            return
        yield reply | {"session": identifier}
        return
    raise AssertionError("unreachable")


def _taken(pieces: Iterator[str | TurnTaken], *, silent: bool) -> Any:
    for piece in pieces:
        if isinstance(piece, tuple):
            return piece
        if not silent:
            yield piece
    raise AssertionError("unreachable")


def _elsewhere(turn: Turn) -> Taking:
    def take(kept: dict[str, Any] | None, text: str) -> Iterator[str | TurnTaken]:
        session, reply = turn(kept, text)
        yield str(reply["answer"])
        yield session, reply

    return take


def _taking(model: LanguageModel | None) -> Taking:
    def take(kept: dict[str, Any] | None, text: str) -> Iterator[str | TurnTaken]:
        session, masked = Session.from_document(kept) if kept else Session(), mask(text).text
        if model is None:
            after, reply = respond(session, masked)
            yield reply.answer
            yield after.document(), reply.document()
            return
        for piece in converse(session, masked, model):
            yield (piece.session.document(), piece.reply.document()) if isinstance(piece, Turned) else piece

    return take
