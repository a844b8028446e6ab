"""Diagnosis: JSON, plain text, or uploaded files streamed to disk; server-sent events where asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Path as PathParam
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from oomdoc.api.answers import Answer, digest
from oomdoc.api.bodies import DIAGNOSIS, LOG, DiagnoseBody
from oomdoc.api.uploads import received
from oomdoc.api.work import Work
from oomkb.errors import OomdocError

router = APIRouter(prefix="/v1", tags=["diagnosis"])
_NOT_KEPT = 1 << 62
Identifier = Annotated[str, PathParam(pattern=r"^[0-9a-f]{8,32}$")]
_ANSWER: dict[str, Any] = {"application/json": {"schema": {"type": "object"}, "example": DIAGNOSIS}}
_FILES = {
    "type": "object",
    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
    "required": ["file"],
}
_REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": DiagnoseBody.model_json_schema(), "example": {"text": LOG}},
            "text/plain": {"schema": {"type": "string", "minLength": 1}, "example": LOG},
            "multipart/form-data": {"schema": _FILES},
        },
    },
    "responses": {"200": {"description": "The diagnosis", "content": _ANSWER}},
}


@router.post("/diagnose", summary="Why it ran out of memory, and what would fit", openapi_extra=_REQUEST)
async def diagnose(request: Request) -> Response:
    """Takes JSON, plain text or files; with ``Accept: text/event-stream`` it tells its progress."""
    work: Work = request.app.state.work
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    streamed = "text/event-stream" in request.headers.get("accept", "")
    if kind == "multipart/form-data":
        return await _diagnose_files(work, request, streamed=streamed)
    if kind not in ("application/json", "text/plain", ""):
        raise HTTPException(415, "send application/json, text/plain or multipart/form-data")
    raw = await request.body()
    arguments = {"kind": kind}
    # A repeated report is answered from its hash, before anything is parsed.
    key = digest(kind.encode(), raw)

    async def work_out() -> tuple[Answer, int]:
        answer = await work.diagnosed(arguments, raw)
        # Not kept for the next one who asks, where the language model failed for the moment.
        return answer, answer.size_bytes if answer.lasts else _NOT_KEPT

    if streamed:
        return StreamingResponse(_events(work, work.answers.once(key, work_out)), media_type="text/event-stream")
    answer: Answer = await work.answers.once(key, work_out)
    return _json(await work.kept(answer, keep=answer.keep))


async def _diagnose_files(work: Work, request: Request, *, streamed: bool) -> Response:
    folder = tempfile.TemporaryDirectory(prefix="oomdoc-")
    try:
        files, fields = await received(request, Path(folder.name))
        arguments = {"files": files, "fields": fields, "limit_bytes": work.settings.max_unpacked_bytes}
        pending = work.diagnosed(arguments)
        if streamed:
            return StreamingResponse(_events(work, pending, folder), media_type="text/event-stream")
        answer = await pending
    finally:
        if not streamed:
            folder.cleanup()
    return _json(await work.kept(answer, keep=answer.keep))


@router.get("/diagnoses/{identifier}", summary="A diagnosis given before", responses={200: {"content": _ANSWER}})
async def again(identifier: Identifier, request: Request) -> Response:
    """As it was given; kept for the days of retention."""
    work: Work = request.app.state.work
    found = await work.apart("store", lambda: work.store().diagnosis(identifier))
    if found is None:
        raise HTTPException(404, "no such diagnosis; it may be older than the days of retention")
    return JSONResponse(found.result)


@router.delete("/diagnoses/{identifier}", status_code=204, summary="Delete a diagnosis")
async def forget(identifier: Identifier, request: Request) -> None:
    """With what was pasted; who knows its id may delete it."""
    work: Work = request.app.state.work
    if not await work.apart("store", lambda: work.store().forget_diagnosis(identifier)):
        raise HTTPException(404, "no such diagnosis")


def _json(text: str) -> Response:
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


async def _events(
    work: Work, pending: Coroutine[Any, Any, Answer], folder: tempfile.TemporaryDirectory[str] | None = None
) -> AsyncIterator[str]:
    """``progress`` while it works, then ``result`` or ``error``; then the folder goes."""
    with folder or contextlib.nullcontext():
        task = asyncio.ensure_future(pending)
        try:
            yield _event("progress", {"stage": "reading"})
            while not task.done():
                await asyncio.wait({task}, timeout=0.5)
                if not task.done():
                    yield _event("progress", {"stage": "diagnosing"})
            yield await _last_event(work, task)
        finally:
            task.cancel()


async def _last_event(work: Work, task: asyncio.Task[Answer]) -> str:
    error = task.exception()
    if error is None:
        text = await work.kept(task.result(), keep=task.result().keep)
        return f"event: result\ndata: {text}\n\n"
    if isinstance(error, HTTPException):
        return _event("error", {"detail": str(error.detail), "status": error.status_code})
    if isinstance(error, OomdocError):
        return _event("error", {"detail": error.message, "where": error.where, "hint": error.hint})
    return _event("error", {"detail": f"internal error ({type(error).__name__})"})


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
