"""Diagnosis: JSON, plain text, or uploaded files streamed to disk; server-sent events where asked for."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from oomdoc.api.bodies import DiagnoseBody
from oomdoc.api.work import Work
from oomdoc.evidence import Source
from oomkb.errors import InputError, JobError, OomdocError

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["diagnosis"])
Progress = Callable[[int, int | None], None]
_COPY_BYTES = 1 << 20
_REQUEST = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": DiagnoseBody.model_json_schema()},
            "text/plain": {"schema": {"type": "string", "minLength": 1}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                    "required": ["file"],
                }
            },
        },
    }
}


@router.post("/diagnose", summary="Why it ran out of memory, and what would fit", openapi_extra=_REQUEST)
async def diagnose(request: Request) -> Response:
    """Takes JSON, plain text or files; with ``Accept: text/event-stream`` it tells its progress."""
    work: Work = request.app.state.work
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    with tempfile.TemporaryDirectory(prefix="oomdoc-") as folder:
        job = await _reader(request, kind, Path(folder))
        if "text/event-stream" in request.headers.get("accept", ""):
            # The folder must outlive this function: the stream works in its own.
            loaded = await run_in_threadpool(job, lambda _done, _total: None)
            return StreamingResponse(_events(work, loaded), media_type="text/event-stream")
        body = await run_in_threadpool(job, lambda _done, _total: None)
        return JSONResponse(await run_in_threadpool(_run, work, body))


class _Input:
    """What is to be diagnosed, from whatever form it came in."""

    def __init__(self, sources: list[Source], body: DiagnoseBody) -> None:
        self.sources = sources
        self.body = body


def _run(work: Work, given: _Input) -> dict[str, Any]:
    body = given.body
    return work.diagnose(given.sources, options=body.set, language=body.lang, plans=body.plans, keep=body.keep)


async def _reader(request: Request, kind: str, folder: Path) -> Callable[[Progress], _Input]:
    """Take the body in; the returned function does the (slow) reading of it."""
    if kind == "multipart/form-data":
        paths, fields = await _uploads(request, folder)
        return lambda progress: _from_files(paths, fields, progress)
    raw = await request.body()
    if kind in ("application/json", ""):
        return lambda _progress: _from_json(raw)
    if kind == "text/plain":
        return lambda _progress: _from_text(raw.decode("utf-8", "replace"))
    raise HTTPException(415, "send application/json, text/plain or multipart/form-data")


def _from_json(raw: bytes) -> _Input:
    try:
        body = DiagnoseBody.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise JobError(first["msg"], where="body." + ".".join(map(str, first["loc"]))) from error
    sources = [Source("input", body.text)]
    return _Input(sources + [Source(name, text) for name, text in body.configs.items()], body)


def _from_text(text: str) -> _Input:
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


def _from_files(paths: list[tuple[str, Path]], fields: dict[str, str], progress: Progress) -> _Input:
    from dataclasses import replace

    from oomdoc.intake.stream import load_source

    sources = [replace(load_source(path, progress=progress), name=name) for name, path in paths]
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
    task = asyncio.ensure_future(run_in_threadpool(_run, work, given))
    while not task.done():
        await asyncio.wait({task}, timeout=0.5)
        if not task.done():
            yield _event("progress", {"stage": "diagnosing"})
    error = task.exception()
    if error is None:
        yield _event("result", task.result())
    elif isinstance(error, OomdocError):
        yield _event("error", {"detail": error.message, "where": error.where, "hint": error.hint})
    else:
        yield _event("error", {"detail": f"internal error ({type(error).__name__})"})


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
