"""Whether it lives, whether it can serve, and its metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from oomdoc.api import metrics
from oomdoc.api.work import Work

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process lives")
async def healthz() -> dict[str, str]:
    """Answers without touching anything else."""
    return {"status": "ok"}


@router.get("/readyz", summary="Whether it answers, component by component")
async def readyz(request: Request) -> JSONResponse:
    """503 while it starts or drains, or where no diagnosis would be answered.

    Answers go on without the store, so a store that is down shows here and in the metrics, and takes no replica out of
    the rotation. The state was determined beforehand: a request costs nothing.
    """
    work: Work = request.app.state.work
    if getattr(request.app.state, "draining", False):
        return JSONResponse({"status": "draining"}, status_code=503)
    good = work.computes and work.index_state == "ok"
    status = "ok" if good and work.store_up else "degraded"
    components = {"store": "ok" if work.store_up else "down", "index": work.index_state}
    return JSONResponse({"status": status, "components": components}, status_code=200 if good else 503)


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def exposition() -> Response:
    """The text exposition format."""
    return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE_LATEST)
