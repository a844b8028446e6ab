"""Forms of a run that nobody started: priced one by one until one fits."""

from __future__ import annotations

from typing import Any, Final

from oomkb.errors import OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price
from oomkb.units import GIB

FITS: Final = 0.75
"""Probability from which the answer is a plain yes."""
HOST_USABLE: Final = 0.9
"""Share of the host memory that the system leaves to one job."""


def first_that_fits(job: Job, forms: list[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """The first form that fits its card, else the one that is nearest to it; without a card the first."""
    nearest: tuple[float, float, dict[str, Any]] | None = None
    for form in forms:
        priced = price_form(job, form)
        if priced is None:
            continue
        estimate = priced.estimate
        if estimate.fits_probability is None:
            return form, True
        if estimate.fits_probability >= FITS:
            return form, True
        need = needed_of(estimate)
        over = need / (estimate.capacity_bytes or need)
        if nearest is None or (over, need) < nearest[:2]:
            nearest = (over, need, form)
    return (nearest[2] if nearest else forms[0]), False


def price_form(job: Job, form: dict[str, Any], *, careful: bool = True) -> Priced | None:
    """The job in that form, eight cards to a machine; ``None`` where it cannot be priced.

    :param careful: as :func:`oomkb.frameworks.complete` takes it.
    """
    nodes = max(1, (form.get("gpus") or 1) // 8)
    spread = {**form, "gpus": 8, "nodes": nodes} if nodes > 1 else form
    try:
        return price(job.with_fields(spread), careful=careful)
    except OomdocError:
        return None


def sharded(form: dict[str, Any], job: Job) -> list[dict[str, Any]]:
    """Copies on every card where they fit, else states split over the cards."""
    if (form.get("gpus") or job.gpus or job.world or 1) < 2:
        return [form]
    method = form.get("method") or job.method or "full"
    if method == "qlora":  # DeepSpeed leaves 4-bit weights whole on every card
        return [{**form, "sharding": name} for name in ("ddp", "fsdp")]
    return [{**form, "sharding": name} for name in (("zero3",) if method == "full" else ("ddp", "zero3"))]


def needed_of(estimate: Estimate) -> float:
    """What the process cannot do without, in bytes: of a server weights, buffers and one request's cache."""
    return estimate.needed_bytes or estimate.process_bytes


def host_is_short(job: Job, estimate: Estimate) -> bool:
    """Whether what is offloaded is more than the host memory that the machine is known to have."""
    return bool(job.host_gib) and estimate.host_bytes > HOST_USABLE * (job.host_gib or 0.0) * GIB


def job_fits(job: Job, estimate: Estimate) -> bool | None:
    """Whether the card holds what it must, and the machine what is offloaded; ``None`` where no card is known."""
    return False if host_is_short(job, estimate) else estimate.fits


def fits_of(estimate: Estimate) -> bool | None:
    """Whether it fits, as the answer says it."""
    return None if estimate.fits_probability is None else estimate.fits_probability >= FITS
