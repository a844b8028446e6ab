"""Pricing, planning and searching: arithmetic and look-ups, nothing kept."""

from __future__ import annotations

import sys
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from oomdoc.api.answers import digest
from oomdoc.api.bodies import EstimateBody, PlanBody, SearchBody
from oomdoc.api.work import Work

router = APIRouter(prefix="/v1", tags=["arithmetic"])


_REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EstimateBody.model_json_schema()}},
    }
}


@router.post("/estimate", summary="What each GPU holds, phase by phase", openapi_extra=_REQUEST)
async def estimate(request: Request) -> Response:
    """Price a job document."""
    work: Work = request.app.state.work
    raw = await request.body()

    async def price() -> tuple[bytes, int]:
        _, text = await work.run("estimate", {}, raw)
        return text, sys.getsizeof(text)

    return Response(await work.prices.once(digest(raw), price), media_type="application/json")


@router.post("/plan", summary="Whether it fits, and what would", response_model=dict[str, Any])
async def plan(body: PlanBody, request: Request) -> Response:
    """Plan a job before it runs."""
    return await _answered(request, "plan", body.model_dump())


@router.post("/search", summary="The known cases that look like a text", response_model=dict[str, Any])
async def search(body: SearchBody, request: Request) -> Response:
    """Search the case records."""
    return await _answered(request, "search", body.model_dump())


async def _answered(request: Request, task: str, arguments: dict[str, Any]) -> Response:
    work: Work = request.app.state.work
    _, text = await work.run(task, arguments)
    return Response(text, media_type="application/json")
