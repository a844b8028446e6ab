"""An estimate as the contract's JSON document."""

from __future__ import annotations

from typing import Any, Final

from oomdoc.report.words import word
from oomkb.memory.estimate import METERS, Estimate, Served
from oomkb.units import GIB, KIB

_PASTED = ("input", "-")
"""Sources that are no files: text that was pasted."""


_WHOLE = 1e15


def show_value(value: Any) -> str:
    """A setting's value as people write it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(show_value, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{k} {show_value(v)}" for k, v in value.items())
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else f"{value:g}"
    return str(value)


def change_sentence(change: dict[str, Any], language: str) -> str:
    """A change as it is made: its key with the old value and the new, and the file; or what to do."""
    if change["instruction"]:
        return str(change["instruction"])
    old, new = change["from"], show_value(change["to"])
    text = f"{change['key']}: {show_value(old)} → {new}" if old is not None else f"{change['key']}: {new}"
    if old is None and change["key"].startswith("--"):
        text = change["key"] if change["to"] is True else f"{change['key']} {new}"
    named = change.get("file") not in (None, *_PASTED)
    return text + (f"  [{change['file']}]" if named else "")


def not_written(field: str, why: str, framework: str, language: str) -> str:
    """Why a field was not written into a file, and what to do (:class:`oomdoc.intake.configs.Patched`)."""
    kind, _, beside = why.partition(" ")
    return word(f"fix.{kind}", language, field=field, framework=framework or "-", beside=beside)


def likely(probability: float | None) -> str:
    """A probability as people read it: nothing about memory is quite certain."""
    return "?" if probability is None else f"{min(0.99, max(0.01, probability)):.0%}"


def plan_sentence(plan: dict[str, Any], language: str) -> str:
    """A plan's figures; a plan that nobody could price has its safety class only."""
    safety = word(f"safety.{plan['safety']}", language)
    if plan["peak_gib"] is None:
        return safety
    return word(
        "report.plan-line",
        language,
        peak=f"{plan.get('needed_gib') or plan['peak_gib']:.2f}",
        probability=likely(plan["fits_probability"]),
        speed=f"{plan['relative_speed']:.2f}",
        safety=safety,
    ) + (word("report.plan-host", language, gib=f"{plan['host_gib']:.0f}") if (plan.get("host_gib") or 0) >= 1 else "")


def fits_sentence(estimate: dict[str, Any], language: str) -> str:
    """Whether an estimate fits a capacity that is known, and how surely."""
    probability = estimate.get("fits_probability")
    shown = likely(probability)
    key = "report.fits-yes" if estimate["fits"] else "report.fits-no"
    return word(key, language, capacity=f"{estimate['capacity_gib']:.2f}", probability=shown)


def other_sentence(document: dict[str, Any], language: str) -> str:
    """The name of a failure that is not memory, to follow the verdict; empty where there is none."""
    other = document.get("other_failure")
    return ": " + word(f"failure.{other['kind']}.title", language) if other else ""


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
        "nvme_gib": gib(estimate.nvme_bytes),
        "sequence_tokens": estimate.sequence_tokens,
        "image_tokens": estimate.image_tokens,
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
