"""Pricing, planning and searching: arithmetic and look-ups, nothing kept."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from oomdoc.api.answers import digest
from oomdoc.api.bodies import EstimateBody, PlanBody, SearchBody, read_body
from oomdoc.api.work import Work
from oomdoc.report.estimates import estimate_document
from oomkb.memory.job import Job
from oomkb.pricing import price_planned

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["arithmetic"])


_REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EstimateBody.model_json_schema()}},
    }
}


@router.post("/estimate", summary="What each GPU holds, phase by phase", openapi_extra=_REQUEST)
async def estimate(request: Request) -> Response:
    """Price a job document. So quick (well under a millisecond) that a thread would cost more."""
    work: Work = request.app.state.work
    raw = await request.body()
    key = digest(raw)
    text: bytes | None = work.prices.get(key)
    if text is None:
        body = read_body(EstimateBody, raw)
        language = "en" if body.lang == "auto" else body.lang
        document = estimate_document(price_planned(Job.from_document(body.job)).estimate, language=language)
        text = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        work.prices.put(key, text, len(text), generation=work.prices.generation)
    return Response(text, media_type="application/json")


@router.post("/plan", summary="Whether it fits, and what would")
async def plan(body: PlanBody) -> dict[str, Any]:
    """Plan a job before it runs."""
    return await run_in_threadpool(_plan, body)


def _plan(body: PlanBody) -> dict[str, Any]:
    from oomdoc.planner import plan_document, plan_job

    language = "en" if body.lang == "auto" else body.lang
    return plan_document(plan_job(body.text, body.filename, body.job), language)


@router.post("/search", summary="The known cases that look like a text")
async def search(body: SearchBody, request: Request) -> dict[str, Any]:
    """Search the case records."""
    return await run_in_threadpool(_search, body)


def _search(body: SearchBody) -> dict[str, Any]:
    from oomdoc.diagnosis.cases import find_cases
    from oomdoc.intake.digest import language_of
    from oomdoc.report.document import match_document

    language = language_of(body.text, body.text) if body.lang == "auto" else body.lang
    return {"matches": [match_document(match, language) for match in find_cases(body.text, top=body.top)]}
