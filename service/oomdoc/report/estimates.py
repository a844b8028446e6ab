"""An estimate as the contract's JSON document."""

from __future__ import annotations

from typing import Any, Final

from oomkb.memory.estimate import METERS, Estimate
from oomkb.units import GIB

__all__ = ["SCHEMA", "estimate_document", "refused_document"]

SCHEMA: Final = "oomdoc.estimate/1"


def _gib(size_bytes: float) -> float:
    return round(size_bytes / GIB, 4)


def estimate_document(estimate: Estimate, *, identifier: str | None = None) -> dict[str, Any]:
    """The document of ``oomdoc estimate``; sizes in GiB."""
    peak = {m: _gib(getattr(estimate, f"{m}_bytes")) for m in METERS}
    interval: dict[str, Any] = {
        m: [_gib(i.low_bytes), _gib(i.high_bytes)] for m, i in estimate.intervals.items() if m in METERS
    }
    if estimate.intervals:
        interval["level"] = next(iter(estimate.intervals.values())).level
    return {
        "schema": SCHEMA,
        "id": identifier,
        "peak_gib": peak,
        "interval_gib": interval,
        "peak_phase": estimate.peak_phase,
        "phases": {
            name: {
                "total_gib": _gib(phase.total_bytes),
                "terms": {term: _gib(size) for term, size in phase.terms_bytes.items()},
            }
            for name, phase in estimate.phases.items()
        },
        "host_gib": _gib(estimate.host_bytes),
        "params": estimate.params,
        "trainable": estimate.trainable,
        "capacity_gib": None if estimate.capacity_bytes is None else _gib(estimate.capacity_bytes),
        "fits": estimate.fits,
        "fits_probability": None if estimate.fits_probability is None else round(estimate.fits_probability, 4),
        "assumed": {name: {"value": a.value, "why": a.why} for name, a in estimate.assumed.items()},
        "warnings": list(estimate.warnings),
        "error": None,
    }


def refused_document(schema: str, identifier: str | None, error: Exception) -> dict[str, Any]:
    """One line of a batch that could not be answered: the same shape, with the error's text."""
    return {"schema": schema, "id": identifier, "error": str(error)}
