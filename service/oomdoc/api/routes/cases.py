"""The case records, those shipped and those submitted."""

from __future__ import annotations

import contextlib
from typing import Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from oomdoc.api.bodies import CaseBody
from oomdoc.api.idempotency import once
from oomdoc.api.work import Work
from oomdoc.store.store import StoreDown
from oomkb.errors import RecordError

__all__ = ["router"]

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
        from oomkb.records.export import case_document

        try:
            return case_document(found(f"{cause}/{slug}"))
        except RecordError as error:
            raise HTTPException(404, error.message) from error

    return await run_in_threadpool(run)


@router.post("/cases", status_code=201, summary="Submit a case")
async def submit(body: CaseBody, request: Request) -> Any:
    """Checked by the same lint as the shipped ones; other replicas find it within seconds."""
    work: Work = request.app.state.work

    def add() -> dict[str, Any]:
        from oomdoc.casework import check_text

        problems = check_text(body.id, body.yaml)
        if problems:
            raise RecordError("; ".join(str(p) for p in problems[:10]), where=body.id, hint="see oomdoc case lint")
        sequence = work.store().add_case(body.id, body.yaml)
        # The case is kept: a full disk or a store that goes away now only delays its mirror.
        with contextlib.suppress(StoreDown, OSError):
            request.app.state.corpus.refresh()
        return {"case": body.id, "sequence": sequence}

    return await run_in_threadpool(once, work, request.headers, body.model_dump_json(), 201, add)
