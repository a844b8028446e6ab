"""Prometheus metrics; nothing in them comes from what was pasted but the verdict and the cause."""

from __future__ import annotations

import os
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["CONTENT_TYPE_LATEST", "diagnosed", "exposition", "observe", "store_up"]

_REQUESTS: Final = Counter("oomdoc_requests_total", "Requests by route and status.", ("method", "route", "status"))
_SECONDS: Final = Histogram(
    "oomdoc_request_seconds",
    "Time to answer.",
    ("route",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
_STORE: Final = Gauge("oomdoc_store_up", "Whether the store answers.", multiprocess_mode="livemin")
_DIAGNOSES: Final = Counter("oomdoc_diagnoses_total", "Diagnoses by verdict and first cause.", ("verdict", "cause"))


def observe(method: str, route: str, status: int, seconds: float) -> None:
    """Count one request."""
    _REQUESTS.labels(method, route, str(status)).inc()
    _SECONDS.labels(route).observe(seconds)


def diagnosed(verdict: str, cause: str) -> None:
    """Count one diagnosis."""
    _DIAGNOSES.labels(verdict, cause).inc()


def store_up(up: bool) -> None:
    """Show whether the store answers."""
    _STORE.set(int(up))


def exposition() -> bytes:
    """The metrics of this process, or of all workers where they share a folder."""
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
    return generate_latest(REGISTRY)
