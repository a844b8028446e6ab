"""An estimate as the contract's JSON document."""

from __future__ import annotations

from typing import Any, Final

from oomkb.memory.estimate import METERS, Estimate, Served
from oomkb.units import GIB, KIB

SCHEMA: Final = "oomdoc.estimate/1"


def gib(size_bytes: float) -> float:
    """In GiB, as documents have sizes."""
    return round(size_bytes / GIB, 4)


def estimate_document(estimate: Estimate, *, identifier: str | None = None, language: str = "en") -> dict[str, Any]:
    """The document of ``oomdoc estimate``; sizes in GiB, warnings in ``language``."""
    peak = {m: gib(getattr(estimate, f"{m}_bytes")) for m in METERS}
    interval: dict[str, Any] = {
        m: [gib(i.low_bytes), gib(i.high_bytes)] for m, i in estimate.intervals.items() if m in METERS
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
                "total_gib": gib(phase.total_bytes),
                "terms": {term: gib(size) for term, size in phase.terms_bytes.items()},
            }
            for name, phase in estimate.phases.items()
        },
        "host_gib": gib(estimate.host_bytes),
        "host_most_gib": gib(estimate.host_most_bytes),
        "host_phases": {
            name: {"total_gib": gib(p.total_bytes), "terms": {t: gib(v) for t, v in p.terms_bytes.items()}}
            for name, p in estimate.host_phases.items()
        },
        "params": estimate.params,
        "trainable": estimate.trainable,
        "capacity_gib": None if estimate.capacity_bytes is None else gib(estimate.capacity_bytes),
        "needed_gib": None if estimate.needed_bytes is None else gib(estimate.needed_bytes),
        "fits": estimate.fits,
        "fits_probability": None if estimate.fits_probability is None else round(estimate.fits_probability, 4),
        "assumed": {name: {"value": a.value, "why": a.why} for name, a in estimate.assumed.items()},
        "serving": served_document(estimate.served),
        "warnings": _warnings(estimate, language),
        "error": None,
    }


def served_document(found: Served | None) -> dict[str, Any] | None:
    """What an engine makes of its share of the card; ``None`` for anything else."""
    if found is None:
        return None
    return {
        "kv_cache_gib": gib(found.cache_bytes),
        "kv_needed_gib": gib(found.needed_bytes),
        "max_model_len": found.length,
        "largest_max_model_len": found.largest_length,
        "max_concurrency": round(found.requests, 2),
        "kv_tokens": found.tokens,
        "kv_kib_per_token": round(found.token_bytes / KIB, 2),
    }


def without_cache(estimate: Estimate) -> float:
    """What a run cannot do without; of a server all that it takes."""
    served = estimate.served is not None or estimate.needed_bytes is None
    return estimate.process_bytes if served else estimate.needed_bytes or 0.0


def _warnings(estimate: Estimate, language: str) -> list[str]:
    if not estimate.warnings:
        return []
    from oomdoc.report.words import word

    return [word(w.key, language, **dict(w.values)) for w in estimate.warnings]


def refused_document(schema: str, identifier: str | None, error: Exception) -> dict[str, Any]:
    """One line of a batch that could not be answered: the same shape, with the error's text."""
    return {"schema": schema, "id": identifier, "error": str(error)}
