"""What people say of a diagnosis."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from oomdoc.api.bodies import FeedbackBody
from oomdoc.api.idempotency import once
from oomdoc.api.work import Work

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["knowledge"])


@router.post("/feedback", status_code=201, summary="Say whether a diagnosis helped")
async def feedback(body: FeedbackBody, request: Request) -> Any:
    """Acknowledged only once it is committed."""
    work: Work = request.app.state.work

    def add() -> dict[str, Any]:
        from oomdoc.intake.redact import mask

        comment = mask(body.comment).text if body.comment else None
        number = work.store().add_feedback(
            diagnosis_id=body.diagnosis, helpful=body.helpful, cause=body.cause, comment_masked=comment
        )
        return {"id": number}

    return await run_in_threadpool(once, work, request.headers, body.model_dump_json(), 201, add)
