"""What people say of a diagnosis."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from sqlalchemy import Connection

from oomdoc.api.bodies import FeedbackBody
from oomdoc.api.work import Work, once
from oomdoc.intake.redact import masked_text

router = APIRouter(prefix="/v1", tags=["knowledge"])


@router.post("/feedback", status_code=201, summary="Say whether a diagnosis helped")
async def feedback(body: FeedbackBody, request: Request) -> Any:
    """Acknowledged only once it is committed."""
    work: Work = request.app.state.work

    def add(connection: Connection) -> dict[str, Any]:
        number = work.store().add_feedback(
            diagnosis_id=body.diagnosis,
            helpful=body.helpful,
            cause=masked_text(body.cause),
            comment_masked=masked_text(body.comment),
            connection=connection,
        )
        return {"id": number}

    return await work.apart("store", once, work, request.headers, body.model_dump_json(), 201, add)
