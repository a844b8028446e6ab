"""Where the arithmetic and the failure disagree: plans are made relative to what happened, and say so."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.accounts import WEIGHT_BYTES
from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.fixes._remedy import is_serving
from oomdoc.diagnosis.forms import HOST_USABLE, host_is_short
from oomdoc.diagnosis.host import host_need
from oomdoc.diagnosis.observed import failed_in
from oomdoc.diagnosis.planning.planner import context_for
from oomdoc.diagnosis.planning.prices import Prices
from oomdoc.diagnosis.planning.printed import (
    EngineCache,
    compute_buffer,
    engine_cache,
    of_maker,
    refused_buffer,
)
from oomdoc.diagnosis.planning.space import BEFORE_STEPS
from oomdoc.evidence import Evidence, Failure, Message, say
from oomkb.dataclass import dataclass
from oomkb.memory.estimate import Estimate
from oomkb.memory.offload import by_fsdp

_FILLED: Final = 0.9
"""Share of a card that weights take so that nothing which is computed fits beside them."""


def of_this_run(evidence: Evidence, prices: Prices, context: Context) -> Context:
    """The context with the card, the model and the sizes of the priced run."""
    context = context_for(prices, context)
    facts = {**context.facts, **_sizes(evidence, prices, context.phase)}
    host_bytes = context.host_bytes
    if host_bytes and evidence.root is not None and evidence.root.kind == "device":
        # The host held the run until its card was full, whatever the estimate of it says.
        host_bytes = max(host_bytes, prices.base.estimate.host_bytes / HOST_USABLE)
    return replace(context, device=of_maker(evidence, context.device), facts=facts, host_bytes=host_bytes)


def _sizes(evidence: Evidence, prices: Prices, phase: str) -> dict[str, Any]:
    """What arithmetic knows that an instruction depends on."""
    need = host_need(evidence, prices.job, prices.base.estimate, prices.shape, phase)
    exceeds = (prices.capacity_bytes or math.inf) * _FILLED < WEIGHT_BYTES * prices.shape.params
    return {
        "host_need": need,
        "fits_on_gpu": _fits_on_gpu(prices),
        "half_exceeds_card": exceeds,
        "unpinned_bytes": prices.base.estimate.host_bytes,
    }


def _fits_on_gpu(prices: Prices) -> bool:
    """Whether parameters that are offloaded, else the optimizer's states, would fit the card, and the rest the host."""
    kinds = prices.job.offload or ()
    kept = {"param"} if "param" in kinds else {"optimizer"}
    if by_fsdp(prices.job, prices.job.sharding or "none"):
        kept = {"param", "optimizer"}  # one switch for both
    found = prices.of({"offload": [kind for kind in kinds if kind not in kept]}) if kept & set(kinds) else None
    if found is None or host_is_short(found.job, found.estimate):
        return False
    return prices.capacity_bytes is None or found.probability >= _MAY_FIT


_MAY_FIT: Final = 0.5


def measured(evidence: Evidence, prices: Prices) -> EngineCache | None:
    """What the engine printed of its own memory, which rules over what is computed."""
    estimate = prices.base.estimate
    request = estimate.served.needed_bytes if estimate.served is not None else 0.0
    loaded = estimate.phases.get("load")
    weights = loaded.total_bytes if loaded is not None else 0.0
    cache = engine_cache(evidence, prices.job, prices.capacity_bytes, request)
    return (
        cache
        or refused_buffer(evidence, prices.job, prices)
        or compute_buffer(evidence, prices.job, weights, prices.capacity_bytes)
    )


_CONTEXT_BYTES: Final = 0.6 * (1 << 30)
"""CUDA context and libraries, where the log states PyTorch's figures alone."""
_MIN_FAILED_SHARE: Final = 1.04
"""A job that is known to have failed needs at least this share of the capacity."""
_MIN_OTHER_BYTES: Final = 256 << 20
"""Less than this in other processes is a display server, already outside the capacity people state."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one GPU really offers, and by how much every prediction is raised."""

    capacity_bytes: float | None
    scale: float = 1.0
    notes: tuple[Message, ...] = ()
    relief: tuple[str, float] | None = None
    """The phase that failed and the bytes to which its tensors must fall, where the estimate's peak is another's."""
    short: float = 1.0
    """What the phase that failed took for every byte of its estimate."""
    beside: float | None = None
    """Bytes by which an engine must fall that took its share, cache and all, and then found too little for what is
    beside it: no scale says that, since with more room it would only have taken more."""


_MPS: Final = "mps-oom"


def calibrate(
    evidence: Evidence,
    estimate: Estimate,
    wanted: float,
    needed_bytes: float | None = None,
    *,
    failed: bool = False,
    own_engine: bool = False,
) -> Calibration:
    """Capacity without what others hold; a scale where the estimate fits though the run is known to have failed.

    :param needed_bytes: what the estimate holds the process cannot do without (what it caches comes on top).
    :param failed: whether it is known to have failed although no message of it was read.
    :param own_engine: whether the process beside it is the run's own rollout engine, which the estimate has.
    """
    needed_bytes = needed_bytes or estimate.process_bytes
    failure = evidence.root
    capacity = estimate.capacity_bytes
    if failure is not None and failure.kind == "device" and failure.capacity_bytes:
        printed = float(failure.capacity_bytes)
        # A Mac's limit lets it swap: what its GPU may use without is less.
        capacity = min(printed, capacity or printed) if failure.signal.name == _MPS else printed
    if capacity is None:
        return Calibration(None)
    notes: list[Message] = []
    others = failure.other_process_bytes if failure is not None else None
    if others and others >= _MIN_OTHER_BYTES and others < 0.9 * capacity and not own_engine:
        capacity -= others
        notes.append(say("fixes.note.other-process", other_bytes=others))
    if failure.kind != "device" if failure is not None else not failed:
        return Calibration(capacity, notes=tuple(notes))
    needed = _needed_bytes(failure) if failure is not None else None
    if needed is not None:
        needed = max(needed, capacity)
        if estimate.served is not None and estimate.served.cache_bytes > estimate.served.needed_bytes:
            beside = max(_MIN_CAPTURE_BYTES, _SPARE * (needed - capacity))
            return Calibration(capacity, notes=tuple(notes), beside=beside, short=needed / estimate.process_bytes)
        relief = _relief(estimate, failed_in(failure), capacity / needed) if failure is not None else None
        if relief is not None:
            held = (failure.allocated_bytes or 0) + (failure.requested_bytes or 0) if failure is not None else 0
            return Calibration(capacity, 1.0, tuple(notes), relief, held / estimate.phases[relief[0]].total_bytes)
        # What PyTorch only caches is given back before it fails: it is in neither figure.
        tensors = max(needed - ((failure and failure.reserved_unallocated_bytes) or 0), capacity)
        if tensors > 1.01 * needed_bytes:
            scale = tensors / needed_bytes
            notes.append(say("fixes.note.calibrated", percent=round(100 * (scale - 1))))
            return Calibration(capacity, scale, tuple(notes))
    elif needed_bytes < _MIN_FAILED_SHARE * capacity and (estimate.fits_probability or 0.0) >= wanted:
        scale = _MIN_FAILED_SHARE * capacity / needed_bytes
        room_bytes = failure.signal.data.get("available_bytes") if failure is not None else None
        if room_bytes is not None:
            notes.append(say("fixes.note.engine-cache", room_bytes=float(room_bytes)))
        else:
            notes.append(say("fixes.note.calibrated-unknown", percent=round(100 * (scale - 1))))
        return Calibration(capacity, scale, tuple(notes))
    return Calibration(capacity, notes=tuple(notes))


_MIN_CAPTURE_BYTES: Final = 256 << 20
_SPARE: Final = 1.25
"""A capture asks again after the request that failed."""


def _relief(estimate: Estimate, phase: str, ratio: float) -> tuple[str, float] | None:
    """What the phase that failed may hold; nothing where the estimate's own peak lies there or beside it.

    A peak in which the run has been is not beside it, however close the sizes are: that one did fit.
    """
    failed, peak = estimate.phases.get(phase), estimate.phases[estimate.peak_phase]
    passed = estimate.peak_phase in BEFORE_STEPS and phase in _STEP
    if failed is None or (failed.total_bytes > _NEAR_PEAK * peak.total_bytes and not passed):
        return None
    return phase, failed.total_bytes * min(1.0, ratio) * _ROOM


_STEP: Final = ("forward", "loss", "backward", "optimizer-step")
_NEAR_PEAK: Final = 0.97
_ROOM: Final = 0.97
"""A little less than what just failed."""


def _needed_bytes(failure: Failure) -> float | None:
    """What the process would have held had the request been granted: a lower bound of its real peak."""
    if failure.requested_bytes is None or failure.requested_bytes > 1 << 42:
        return None
    if failure.process_bytes:
        return float(failure.process_bytes + failure.requested_bytes)
    if failure.capacity_bytes and failure.free_bytes is not None and not failure.other_process_bytes:
        return float(failure.capacity_bytes - failure.free_bytes + failure.requested_bytes)
    reserved = failure.reserved_bytes
    if reserved is None and failure.allocated_bytes is not None:
        reserved = failure.allocated_bytes + (failure.reserved_unallocated_bytes or 0)
    if reserved is None:  # one request beyond the card is a bound by itself
        beyond = bool(failure.capacity_bytes) and failure.requested_bytes > (failure.capacity_bytes or 0)
        return float(failure.requested_bytes) if beyond else None
    return reserved + failure.requested_bytes + _CONTEXT_BYTES


def loads_easily(evidence: Evidence, prices: Prices) -> Message | None:
    """That an engine failed while it loaded weights that take little of an empty card: no setting of it is at fault.

    ``None`` where it is not so, or the failure's own figures tell what held the card.
    """
    root, load = evidence.root, prices.base.estimate.phases.get("load")
    if root is None or root.kind != "device" or root.phase != "load" or not is_serving(prices.job) or load is None:
        return None
    capacity = prices.capacity_bytes or 0.0
    counted = root.requested_bytes or root.allocated_bytes or root.free_bytes
    if counted or load.total_bytes > _EASILY * capacity:
        return None
    return say("fixes.note.loads-easily", weight_bytes=load.total_bytes, capacity_bytes=capacity)


_EASILY: Final = 0.5
"""Share of the card that weights take at most so that loading them alone cannot fill it."""
