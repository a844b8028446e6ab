"""An estimate as the contract's JSON document."""

from __future__ import annotations

from typing import Any, Final

from oomkb.memory.estimate import METERS, Estimate, Served
from oomkb.units import GIB

__all__ = ["SCHEMA", "estimate_document", "refused_document"]

SCHEMA: Final = "oomdoc.estimate/1"


def _gib(size_bytes: float) -> float:
    return round(size_bytes / GIB, 4)


def estimate_document(estimate: Estimate, *, identifier: str | None = None, language: str = "en") -> dict[str, Any]:
    """The document of ``oomdoc estimate``; sizes in GiB, warnings in ``language``."""
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
        "serving": _served(estimate.served),
        "warnings": _warnings(estimate, language),
        "error": None,
    }


def _served(found: Served | None) -> dict[str, Any] | None:
    """What an engine makes of its share of the card; ``None`` for anything else."""
    if found is None:
        return None
    return {
        "kv_cache_gib": _gib(found.cache_bytes),
        "kv_needed_gib": _gib(found.needed_bytes),
        "max_model_len": found.length,
        "largest_max_model_len": found.largest_length,
        "max_concurrency": round(found.requests, 2),
    }


def _warnings(estimate: Estimate, language: str) -> list[str]:
    if not estimate.warnings:
        return []
    from oomdoc.report.words import word

    return [word(w.key, language, **dict(w.values)) for w in estimate.warnings]


def refused_document(schema: str, identifier: str | None, error: Exception) -> dict[str, Any]:
    """One line of a batch that could not be answered: the same shape, with the error's text."""
    return {"schema": schema, "id": identifier, "error": str(error)}
