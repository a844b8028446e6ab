"""Conversations: the session lives in the store, so any replica can go on with it; streamed where asked for."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from oomdoc.api.bodies import ChatBody
from oomdoc.api.work import Work
from oomdoc.language_model import from_settings
from oomdoc.sessions import answer, answering
from oomkb.errors import OomdocError

router = APIRouter(prefix="/v1", tags=["diagnosis"])
_REPLY: dict[str, Any] = {
    "responses": {"200": {"description": "The reply", "content": {"application/json": {"schema": {"type": "object"}}}}}
}


@router.post("/chat", summary="One turn of a conversation", openapi_extra=_REPLY)
async def chat(body: ChatBody, request: Request) -> Response:
    """Without ``session`` a new one begins; the answer carries its id.

    With ``Accept: text/event-stream``: ``delta`` events with pieces of the answer, then ``result`` or ``error``.
    """
    work: Work = request.app.state.work
    session = body.session or secrets.token_hex(12)
    model = from_settings(work.settings) if body.language_model else None
    options: dict[str, Any] = {"new": body.session is None, "model": model, "turn": work.turn}
    if "text/event-stream" in request.headers.get("accept", ""):
        pieces = answering(work.store, session, body.text, **options)
        return StreamingResponse(_events(pieces), media_type="text/event-stream")
    return JSONResponse(await work.apart("talk", partial(answer, work.store, session, body.text, **options)))


def _events(pieces: Iterator[str | dict[str, Any]]) -> Iterator[str]:
    """Run in a thread, as any iterator that is streamed."""
    try:
        for piece in pieces:
            if isinstance(piece, str):
                yield _event("delta", {"text": piece})
            else:
                yield _event("result", piece)
    except OomdocError as error:
        yield _event("error", {"detail": error.message, "where": error.where, "hint": error.hint})


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
