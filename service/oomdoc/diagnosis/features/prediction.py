"""What the memory model predicts for the job, against the card: arithmetic speaks where it can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from oomdoc.diagnosis.features.sizes import bucket
from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.evidence import say
from oomkb.memory.estimate import Phase

_FULLNESS_ENDS: Final = {"far-below": 0.5, "below": 0.85, "near": 1.0, "above": 1.5, "far-above": 4.0, "beyond": inf}
_WEIGHTS_ENDS: Final = {"few": 0.2, "part": 0.5, "most": 0.8, "nearly-all": 1.0, "exceed": inf}
_STATES_ENDS: Final = {"few": 0.25, "part": 0.5, "most": 0.85, "nearly-all": 1.0, "exceed": inf}
_LEAST_SHARE: Final = 0.15
_ROOM, _FULL = 0.75, 0.95
"""Fullness below which the peak's composition decides nothing, and from which it decides all."""
_WIDEST_BYTES: Final = 4
_SMALLEST_BYTES: Final = 0.55
"""Bytes per parameter of the smallest usable weights: 4 bit with scales."""
_FULL_TRAINING_BYTES: Final = 16
"""Bytes per parameter of mixed-precision AdamW: weight, gradient, fp32 master and two moments (Rajbhandari et al.,
"ZeRO", 2020, section 3.1)."""
_EARLY_PHASES: Final = frozenset({"load", "engine-init", "unknown"})
"""Phases in which weights may still be on their way to the card."""
_CLOSE: Final = 0.05
_ENGINE: Final = "rollout engine"
_ENGINE_MAY_SLEEP: Final = frozenset({"forward", "loss", "backward", "optimizer-step"})
"""Phases of a failure in which the engine of a trainer that puts it to sleep holds next to nothing."""
_ASLEEP: Final = 0.1
"""Part of what an engine holds while it generates, below which it is asleep."""
_OVER_RANKS: Final = frozenset({"zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp"})
_UNSHARDED: Final = frozenset({None, "none", "ddp"})


def features(view: View) -> Iterator[Feature]:
    """Shares of the predicted peak, weights and states against the card, and what the request exceeds."""
    estimate, capacity = view.estimate, view.bytes_of("capacity")
    if estimate is None:
        yield from _without_estimate(view, capacity)
        return
    yield from _shares(view)
    if not capacity:
        return
    known = view.stated("model") is not None or view.stated("params_b") is not None
    if not known:
        return
    weights, states = view.weight_bytes, view.state_bytes
    sizes = {"weights_bytes": weights, "capacity_bytes": capacity}
    part = bucket(weights / capacity, _WEIGHTS_ENDS)
    early = view.phase in _EARLY_PHASES
    yield Feature(f"weights:{part}", 1.0, say("feature.weights", **sizes))
    yield Feature(f"weights-{'early' if early else 'later'}:{part}", 1.0, say("feature.weights", **sizes))
    if view.training and states:
        said = say("feature.states", states_bytes=states, capacity_bytes=capacity)
        value = 1.0 if any(view.stated(n) is not None for n in ("method", "optimizer", "lora", "sharding")) else 0.6
        yield Feature(f"states:{bucket(states / capacity, _STATES_ENDS)}", value, said)
    if view.fullness is not None:
        said = say(
            "feature.predicted", peak_bytes=estimate.needed_bytes or estimate.process_bytes, capacity_bytes=capacity
        )
        name = bucket(view.fullness, _FULLNESS_ENDS)
        yield Feature(f"predicted:{name}", max(view.certainty, 0.2), said if view.supposed is None else None)
    yield from _engine_share(view, estimate.phases, capacity)
    yield from _whole_copies(view, estimate.params, capacity)
    yield from _request(view, estimate.params)


def _without_estimate(view: View, capacity: int | None) -> Iterator[Feature]:
    params = (view.stated("params_b") or 0) * 1e9
    yield Feature("predicted:not")
    if params and capacity:
        yield from _whole_copies(view, params, capacity)


def _shares(view: View) -> Iterator[Feature]:
    """Each cause's part of the predicted peak, as far as the job is predicted not to fit."""
    failure, estimate, capacity = view.failure, view.estimate, view.bytes_of("capacity")
    if estimate is None or (failure is not None and failure.kind != "device"):
        return
    phases, fullest = estimate.phases, view.fullest
    held = (
        (estimate.needed_bytes or estimate.process_bytes)
        - phases[estimate.peak_phase].total_bytes
        + phases[fullest].total_bytes
    )
    over = 0.5 if not capacity else min(1.0, max(0.0, (held / capacity - _ROOM) / (_FULL - _ROOM)))
    for cause, share in view.shares.items():
        value = share * over * max(view.certainty, 0.3)
        if share >= _LEAST_SHARE and value > 0:
            key = "cause.peak-share" if fullest == estimate.peak_phase else "cause.phase-share"
            message = say(key, percent=round(100 * share), peak_bytes=held, phase=fullest)
            yield Feature(f"share:{cause}", min(value, 1.0), message if view.supposed is None else None)


def _engine_share(view: View, phases: Mapping[str, Phase], capacity: int) -> Iterator[Feature]:
    """A colocated engine: asleep when it failed, or with a share that leaves too little for the weights."""
    rollout = None if "rollout" in view.job.assumed else view.job.rollout
    share = view.stated("rollout.gpu_memory_utilization")
    if "rollout" in phases and view.phase in _ENGINE_MAY_SLEEP and view.phase_shown:
        held = phases[view.fullest].terms_bytes.get(_ENGINE, 0.0)
        if held < _ASLEEP * min(phases["rollout"].terms_bytes[_ENGINE], capacity):
            yield Feature("engine:asleep-when-it-failed", 1.0, say("feature.engine-asleep", held_bytes=held))
    if rollout is None or share is None or rollout.colocated is False or view.serving:
        return
    left = (1 - share) * capacity
    if view.weight_bytes > left:
        message = say("feature.engine-leaves", share=share, left_bytes=left, weights_bytes=view.weight_bytes)
        yield Feature("engine:leaves-less-than-weights", 1.0, message)


def _whole_copies(view: View, params: float, capacity: int) -> Iterator[Feature]:
    """Weights or states whole against one card and against all of them."""
    job, ranks = view.job, view.ranks or 1
    total = capacity * ranks
    whole = params * (2 if job.quant in (None, "none") and job.method != "qlora" else _SMALLEST_BYTES)
    if whole > capacity:
        message = say("feature.whole-weights", weights_bytes=whole, capacity_bytes=capacity)
        yield Feature("whole-weights:exceed-card", 1.0, message)
    if params * _SMALLEST_BYTES > total:
        message = say("feature.floor", floor_bytes=params * _SMALLEST_BYTES, total_bytes=total)
        yield Feature("smallest-weights:exceed-all-cards", 1.0, message)
    if (
        view.training
        and job.method == "full"
        and params * _FULL_TRAINING_BYTES > total
        and (view.state_bytes or total) * ranks >= total  # as priced: held in 16 bits, states are half of it
        and "optimizer" not in (job.offload or ())
    ):
        message = say("feature.full-states", states_bytes=params * _FULL_TRAINING_BYTES, total_bytes=total)
        yield Feature("full-states:exceed-all-cards", 1.0, message)
    if job.sharding in _OVER_RANKS and view.ranks == 1:
        yield Feature("sharding:over-one-rank", 1.0, say("feature.one-rank", sharding=job.sharding))
    visible = view.evidence.value("gpu_count")
    if isinstance(visible, int) and visible > 1 and view.training:
        if view.ranks == 1:
            yield Feature("ranks:one-of-many-gpus", 1.0, say("feature.one-process", visible=visible))
        elif job.sharding in _UNSHARDED and ranks > 1:
            yield Feature("states:whole-on-each-rank", 1.0, say("feature.replicated", ranks=ranks))
    yield from _allocated(view, capacity)


def _allocated(view: View, capacity: int) -> Iterator[Feature]:
    """What is allocated against the weights: less than all of them means that they were still being placed."""
    allocated = view.bytes_of("allocated")
    if allocated and 0.4 * capacity < allocated < 0.9 * view.weight_bytes:
        message = say("feature.partial", allocated_bytes=allocated, weights_bytes=view.weight_bytes)
        yield Feature("allocated:less-than-weights", 1.0, message)


def _request(view: View, params: float) -> Iterator[Feature]:
    """A request larger than any weight, or one flat copy of all parameters or of a rank's part."""
    requested, shape = view.bytes_of("requested"), view.shape
    if not requested:
        return
    if shape is not None and not shape.dims.experts and view.job.model is not None:
        largest = max(shape.dims.vocab, 2 * shape.dims.ffn) * shape.dims.hidden * _WIDEST_BYTES
        if requested > 1.1 * largest:
            yield Feature("request:beyond-any-weight", 1.0, say("feature.beyond-weight", largest_bytes=largest))
    for ranks in {view.ranks or 1, 1}:
        for width in (4, 2):
            if abs(requested * ranks / (params * width) - 1) < _CLOSE:
                message = say("feature.flat-copy", params=round(params / 1e9, 2), width=width, ranks=ranks)
                yield Feature("request:flat-copy-of-parameters", 1.0, message)
                return
