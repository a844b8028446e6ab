"""Errors as RFC 9457 problem documents, through one handler."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from oomdoc.api.pool import Overloaded
from oomdoc.intake.redact import masked_text
from oomdoc.store.store import Conflict, StoreDown
from oomkb.errors import CatalogError, InputError, JobError, OomdocError, RecordError

CONTENT_TYPE: Final = "application/problem+json"
_STATUS: Final[tuple[tuple[type[OomdocError], int], ...]] = (
    (StoreDown, 503),
    (Overloaded, 503),
    (Conflict, 409),
    (JobError, 422),
    (CatalogError, 422),
    (RecordError, 422),
    (InputError, 400),
)


def problem(
    status: int, detail: str, *, where: str = "", hint: str = "", headers: dict[str, str] | None = None
) -> JSONResponse:
    """One problem document; ``where`` and ``hint`` are extension members. What it quotes was sent: it is masked."""
    given = {"detail": detail, "where": where, "hint": hint}
    said = {name: text.encode("utf-8", "replace").decode() for name, text in given.items()}
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    body |= {name: masked_text(text) for name, text in said.items() if text or name == "detail"}
    return JSONResponse(body, status_code=status, media_type=CONTENT_TYPE, headers=headers)


def install(app: FastAPI) -> None:
    """Answer every error of the application as a problem document."""

    @app.exception_handler(OomdocError)
    async def _known(_request: Request, error: OomdocError) -> JSONResponse:
        status = next((s for kind, s in _STATUS if isinstance(error, kind)), 400)
        headers = {"Retry-After": "5"} if status == 503 else None
        return problem(status, error.message, where=error.where, hint=error.hint, headers=headers)

    @app.exception_handler(OSError)
    async def _disk(_request: Request, error: OSError) -> JSONResponse:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return problem(507, "the disk is full", hint="make room in the temporary and the state folder")
        return problem(500, f"internal error ({type(error).__name__})", hint="please report it")

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if error.status_code in (400, 408, 413):  # what is left of the body is not read: the connection goes
            headers["Connection"] = "close"
        return problem(error.status_code, str(error.detail), headers=headers or None)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return problem(422, str(first["msg"]), where=".".join(str(part) for part in first["loc"]))

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> JSONResponse:
        # The text of an unexpected error may hold what was pasted: the log gets its kind, the caller the request id.
        identifier = getattr(request.state, "request_id", "")
        return problem(500, f"internal error ({type(error).__name__}), request {identifier}", hint="please report it")
