"""The messengers' callbacks: checked, acknowledged at once, answered afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException

from oomdoc.api.work import Work
from oomdoc.bots import CALLBACKS, configured
from oomdoc.bots.bot import Bot
from oomdoc.bots.message import Call, Refused
from oomdoc.language_model import from_settings
from oomdoc.sessions import answering

router = APIRouter(prefix="/integrations", tags=["messengers"])
# Messages are small; files are fetched, not pushed.
_BODY_BYTES: Final = 1 << 20


@router.post("/{platform}/{action}", summary="A messenger's callback", response_class=Response)
async def post(platform: str, action: str, request: Request) -> Response:
    """Only calls that carry the platform's signature are read; 404 for a platform that is not set up."""
    return await _receive(platform, action, request)


@router.get("/{platform}/{action}", summary="A messenger's check of this address", response_class=Response)
async def get(platform: str, action: str, request: Request) -> Response:
    """WeCom verifies an address by GET."""
    return await _receive(platform, action, request)


async def _receive(name: str, action: str, request: Request) -> Response:
    if action not in CALLBACKS.get(name, ()):
        raise HTTPException(404, "no messenger calls this address")
    bot = _bot(request, name)
    if bot is None:
        raise HTTPException(404, "this messenger is not set up: give its settings (docs/bots.md) and restart")
    body = await request.body()
    if len(body) > _BODY_BYTES:
        raise HTTPException(413, f"the body is larger than {_BODY_BYTES:,} bytes")
    call = Call(request.method, dict(request.headers), dict(request.query_params), body)
    try:
        received = bot.platform.receive(call, time.time())
    except Refused as error:
        raise HTTPException(error.status, error.message) from error
    # The work begins after the acknowledgement has been sent, counts as a request in flight, and is waited for at
    # shutdown.
    task = BackgroundTask(bot.handle, received.message) if received.message is not None else None
    return Response(received.body, received.status, media_type=received.media_type, background=task)


def _bot(request: Request, name: str) -> Bot | None:
    """A platform's bot, made at its first call; ``state.bot_transport`` is another way out, for tests.

    :raises InputError: where its settings cannot be right; the other platforms go on.
    """
    state = request.app.state
    if not hasattr(state, "bots"):
        state.bots = {}
    bots: dict[str, Bot] = state.bots
    if name not in bots:
        work: Work = state.work
        platform = configured(name, work.settings, getattr(state, "bot_transport", None))
        if platform is None:
            return None
        model = from_settings(work.settings)

        def turn(session: str, text: str) -> Iterator[str | dict[str, Any]]:
            return answering(work.store, session, text, new=True, model=model, turn=work.turn)

        bots[name] = Bot(platform, turn, work.store, streams=model is not None)
    return bots[name]
