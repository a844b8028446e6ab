"""Diagnosis: JSON, plain text, or uploaded files streamed to disk; server-sent events where asked for."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Path as PathParam
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from oomdoc.api.answers import Answer, digest
from oomdoc.api.bodies import DIAGNOSIS, LOG, DiagnoseBody, read_body
from oomdoc.api.work import Work
from oomdoc.evidence import Source
from oomkb.errors import InputError, OomdocError

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["diagnosis"])
Identifier = Annotated[str, PathParam(pattern=r"^[0-9a-f]{8,32}$")]
_COPY_BYTES = 1 << 20
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
    if streamed:
        given = _from_text(raw) if kind == "text/plain" else _from_json(raw)
        return StreamingResponse(_events(work, given), media_type="text/event-stream")
    # A repeated report is answered from its hash, before anything is parsed.
    key = digest(kind.encode(), raw)
    answer = work.answers.get(key)
    if answer is None:
        generation = work.answers.generation
        answer = await work.computed(lambda: _worked_out(work, kind, raw))
        work.answers.put(key, answer, 200, generation=generation)
    return _json(await work.kept(answer, keep=answer.keep))


def _worked_out(work: Work, kind: str, raw: bytes) -> Answer:
    given = _from_text(raw) if kind == "text/plain" else _from_json(raw)
    return replace(_run(work, given), keep=given.body.keep)


async def _diagnose_files(work: Work, request: Request, *, streamed: bool) -> Response:
    with tempfile.TemporaryDirectory(prefix="oomdoc-") as folder:
        paths, fields = await _uploads(request, Path(folder))
        # The folder goes with this function: what is read must be read before.
        given = await run_in_threadpool(_from_files, paths, fields)
    if streamed:
        return StreamingResponse(_events(work, given), media_type="text/event-stream")
    answer = await work.computed(lambda: _run(work, given))
    return _json(await work.kept(answer, keep=given.body.keep))


@router.get("/diagnoses/{identifier}", summary="A diagnosis given before", responses={200: {"content": _ANSWER}})
async def again(identifier: Identifier, request: Request) -> Response:
    """As it was given; kept for the days of retention."""
    work: Work = request.app.state.work
    found = await run_in_threadpool(lambda: work.store().diagnosis(identifier))
    if found is None:
        raise HTTPException(404, "no such diagnosis; it may be older than the days of retention")
    return JSONResponse(found.result)


@router.delete("/diagnoses/{identifier}", status_code=204, summary="Delete a diagnosis")
async def forget(identifier: Identifier, request: Request) -> None:
    """With what was pasted; who knows its id may delete it."""
    work: Work = request.app.state.work
    if not await run_in_threadpool(lambda: work.store().forget_diagnosis(identifier)):
        raise HTTPException(404, "no such diagnosis")


class _Input:
    """What is to be diagnosed, from whatever form it came in."""

    def __init__(self, sources: list[Source], body: DiagnoseBody) -> None:
        self.sources = sources
        self.body = body


def _run(work: Work, given: _Input) -> Answer:
    body = given.body
    return work.answer(given.sources, options=body.set, language=body.lang, plans=body.plans)


def _json(text: str) -> Response:
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


def _from_json(raw: bytes) -> _Input:
    body = read_body(DiagnoseBody, raw)
    sources = [Source("input", body.text)]
    return _Input(sources + [Source(name, text) for name, text in body.configs.items()], body)


def _from_text(raw: bytes) -> _Input:
    text = raw.decode("utf-8", "replace")
    if not text.strip():
        raise InputError("the body is empty", where="body", hint="send the log as text")
    return _Input([Source("input", text)], DiagnoseBody(text=text))


async def _uploads(request: Request, folder: Path) -> tuple[list[tuple[str, Path]], dict[str, str]]:
    paths: list[tuple[str, Path]] = []
    fields: dict[str, str] = {}
    async with request.form(max_files=16, max_fields=32, max_part_size=1 << 20) as form:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields[name] = value
                continue
            path = folder / f"{len(paths)}{''.join(Path(value.filename or '').suffixes[-2:])[:16]}"
            with path.open("wb") as file:
                while chunk := await value.read(_COPY_BYTES):
                    await run_in_threadpool(file.write, chunk)
            paths.append((Path(value.filename or "upload").name[:200], path))
    if not paths:
        raise InputError("no file was sent", where="body", hint="send it as the form field `file`")
    return paths, fields


def _from_files(paths: list[tuple[str, Path]], fields: dict[str, str]) -> _Input:
    from oomdoc.intake.stream import load_source

    sources = [replace(load_source(path), name=name) for name, path in paths]
    try:
        options = json.loads(fields.get("set") or "{}")
    except ValueError as error:
        raise InputError("not JSON", where="body.set", hint='write job fields as {"gpus": 8}') from error
    lang = fields.get("lang") if fields.get("lang") in ("en", "zh") else "auto"
    keep = fields.get("keep") != "false"
    settings = {"text": "-", "set": options, "lang": lang, "keep": keep}
    return _Input(sources, _from_json(json.dumps(settings).encode()).body)


async def _events(work: Work, given: _Input) -> AsyncIterator[str]:
    """``progress`` while it works, then ``result`` or ``error``."""
    yield _event("progress", {"stage": "reading", "sources": len(given.sources)})
    task = asyncio.ensure_future(work.computed(lambda: _run(work, given)))
    while not task.done():
        await asyncio.wait({task}, timeout=0.5)
        if not task.done():
            yield _event("progress", {"stage": "diagnosing"})
    error = task.exception()
    if error is None:
        text = await work.kept(task.result(), keep=given.body.keep)
        yield f"event: result\ndata: {text}\n\n"
    elif isinstance(error, HTTPException):
        yield _event("error", {"detail": str(error.detail), "status": error.status_code})
    elif isinstance(error, OomdocError):
        yield _event("error", {"detail": error.message, "where": error.where, "hint": error.hint})
    else:
        yield _event("error", {"detail": f"internal error ({type(error).__name__})"})


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
