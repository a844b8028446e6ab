"""Conversations: the session lives in the store, so any replica can go on with it."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from oomdoc.api.bodies import ChatBody
from oomdoc.api.work import Work
from oomdoc.language_model import from_settings
from oomdoc.sessions import answer

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["diagnosis"])


@router.post("/chat", summary="One turn of a conversation")
async def chat(body: ChatBody, request: Request) -> dict[str, Any]:
    """Without ``session`` a new one begins; the answer carries its id."""
    work: Work = request.app.state.work
    session = body.session or secrets.token_hex(12)
    model = from_settings(work.settings)
    new = body.session is None
    return await run_in_threadpool(answer, work.store, session, body.text, new=new, model=model, turn=work.turn)
