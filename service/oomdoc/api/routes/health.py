"""Whether it lives, whether it can serve, and its metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from oomdoc.api import metrics
from oomdoc.api.work import Work

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process lives")
async def healthz() -> dict[str, str]:
    """Answers without touching anything else."""
    return {"status": "ok"}


@router.get("/readyz", summary="Whether it can serve, component by component")
async def readyz(request: Request) -> JSONResponse:
    """503 where a component is down; diagnoses are answered even while the store is."""
    work: Work = request.app.state.work
    if getattr(request.app.state, "draining", False):
        return JSONResponse({"status": "draining"}, status_code=503)
    components = await run_in_threadpool(work.ready)
    good = all(state == "ok" for state in components.values())
    return JSONResponse(
        {"status": "ok" if good else "degraded", "components": components}, status_code=200 if good else 503
    )


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def exposition() -> Response:
    """The text exposition format."""
    return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE_LATEST)
