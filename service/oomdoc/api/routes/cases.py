"""The case records, those shipped and those submitted."""

from __future__ import annotations

import contextlib
from typing import Any

from fastapi import APIRouter, Query, Request
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from oomdoc.api.bodies import CaseBody
from oomdoc.api.work import Work, once
from oomdoc.intake.redact import masked_text
from oomdoc.store.store import Conflict, StoreDown
from oomkb.errors import RecordError
from oomkb.records.loader import shipped_ids

router = APIRouter(prefix="/v1", tags=["knowledge"])


@router.get("/cases", summary="List the cases")
async def cases(
    cause: str | None = Query(None, max_length=64),
    framework: str | None = Query(None, max_length=64),
    limit: int = Query(100, ge=1, le=1000),
    offset: int = Query(0, ge=0, le=1_000_000),
) -> dict[str, Any]:
    """Ids, titles and sources, in order of id."""

    def run() -> dict[str, Any]:
        from oomdoc.casework import listed

        found = listed(cause=cause, framework=framework)
        page = found[offset : offset + limit]
        return {"total": len(found), "cases": [{"case": c.id, "title": dict(c.title), "url": c.url} for c in page]}

    return await run_in_threadpool(run)


@router.get("/cases/{cause}/{slug}", summary="One case")
async def case(cause: str, slug: str) -> dict[str, Any]:
    """The whole record."""

    def run() -> dict[str, Any]:
        from oomdoc.casework import found
        from oomkb.records.case import case_document

        try:
            return case_document(found(f"{cause}/{slug}"))
        except RecordError as error:
            raise HTTPException(404, error.message) from error

    return await run_in_threadpool(run)


@router.post("/cases", status_code=201, summary="Submit a case")
async def submit(body: CaseBody, request: Request) -> Any:
    """Checked by the same lint as the shipped ones, whose ids stay theirs; other replicas find it within seconds."""
    work: Work = request.app.state.work
    owner = str(request.scope["state"]["caller"])[:64]

    def run() -> Any:
        problems = work.run_from_thread("case-problems", {"id": body.id, "yaml": body.yaml})["problems"]
        if problems:
            raise RecordError("; ".join(problems[:10]), where=body.id, hint="see oomdoc case lint")
        if body.id in shipped_ids():
            raise Conflict("a case of this id is shipped", where=body.id, hint="choose another slug")

        def add(connection: Connection) -> dict[str, Any]:
            yaml = masked_text(body.yaml) or ""
            sequence = work.store().add_case(body.id, yaml, owner=owner, connection=connection)
            return {"case": body.id, "sequence": sequence}

        answer = once(work, request.headers, body.model_dump_json(), 201, add)
        # The case is kept: a full disk or a store that goes away now only delays its mirror.
        with contextlib.suppress(StoreDown, OSError):
            request.app.state.corpus.refresh()
        return answer

    return await work.apart("store", run)


@router.delete("/cases/{cause}/{slug}", status_code=204, summary="Delete a case that one submitted")
async def withdraw(cause: str, slug: str, request: Request) -> None:
    """With the key that submitted it, or an admin's; shipped cases cannot be deleted."""
    work: Work = request.app.state.work
    identifier, state = f"{cause}/{slug}", request.scope["state"]

    def run() -> None:
        owner = work.store().case_owner(identifier)
        if owner is None:
            raise HTTPException(404, "nobody submitted a case of this id")
        if owner != str(state["caller"])[:64] and not state.get("admin"):
            raise HTTPException(403, "somebody else submitted this case")
        work.store().forget_case(identifier)
        with contextlib.suppress(StoreDown, OSError):
            request.app.state.corpus.refresh()

    await work.apart("store", run)
