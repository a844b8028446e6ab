"""What a run showed of its memory, and how well an estimate agrees with it.

Three kinds of figures speak: what was held when it failed, peaks and steps that were printed, and sizes at which the
run went well. Two more follow from the place of the failure: what was passed before it fitted the card, and a request
at the logits has the size of the logits.
"""

from __future__ import annotations

import math
from typing import Final

from oomdoc.diagnosis.forms import most_of
from oomdoc.evidence import Evidence, Failure
from oomdoc.intake.phase import scores_rollouts
from oomkb.dataclass import dataclass
from oomkb.memory.estimate import PHASES, Estimate
from oomkb.memory.job import Job
from oomkb.units import GIB

_SHORT_SIGMA: Final = 0.12
"""Relative error of the model where it falls short of what was held (bench/memory_accuracy)."""
_ABOVE_SCALE: Final = 0.6
"""A run may fail on the way to a peak that is still higher: log-odds per e-fold above what was seen."""
_FREE: Final = 0.1
_STATIC_SIGMA: Final = 0.08
_PEAK_SIGMA: Final = 0.15
_REQUEST_SIGMA: Final = 0.02
_OTHER_TENSOR: Final = -3.0
"""Log-likelihood of a request at the logits that is not of their size: it may be another tensor's."""
_LEAST_BYTES: Final = 0.5 * GIB
_FP32_BYTES: Final = 4
_PAIRED: Final = frozenset({"dpo", "orpo", "simpo", "rm"})
_ONE_PASS: Final = frozenset({None, "sft", "pretrain", *_PAIRED})
"""Objectives whose logits are all of the micro-batch's tokens."""
_UPCAST: Final = ("logits.float()", "logits.to(torch.float32)", "log_softmax(", "upcast_logits")
"""transformers' ``loss/loss_utils.py`` and ``modeling_*.py``, TRL's trainers: a copy in fp32, or one of that size."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run showed of its memory, in bytes per GPU."""

    failed_bytes: float | None = None
    """Allocated and asked for together, when it failed."""
    held_bytes: float | None = None
    """Allocated when it failed."""
    peak_bytes: float | None = None
    """A printed peak of tensors or of the allocator."""
    step_bytes: float | None = None
    """Allocated at a step, not at its peak."""
    phase: str = "unknown"
    stepped: bool = False
    worked: tuple[tuple[str, int, float | None], ...] = ()
    """Sizes at which the run went well: a job field (none: as it is), its value, and what the process held then."""
    capacity_bytes: float | None = None
    logits_bytes: float | None = None
    """A request for a copy of the logits in fp32."""

    @property
    def figure_bytes(self) -> float | None:
        """The figure that people compare with."""
        return self.peak_bytes or self.failed_bytes or self.step_bytes


def observed_in(evidence: Evidence) -> Observed | None:
    """The figures of a run; ``None`` where it printed none."""
    failure = evidence.root
    held = failed = capacity = logits = None
    phase = "unknown"
    if failure is not None and failure.kind == "device":
        held, phase, capacity = failure.allocated_bytes, failure.phase, failure.capacity_bytes
        if held is None and failure.reserved_bytes is not None:
            held = failure.reserved_bytes - (failure.reserved_unallocated_bytes or 0)
        if held is not None and held >= _LEAST_BYTES:
            failed = float(held + (failure.requested_bytes or 0))
        phase = failed_in(failure)
        if phase in ("forward", "loss", "unknown") and _copies_logits(failure):
            phase, logits = "loss", failure.requested_bytes
    peak = step = None
    for signal in evidence.find("memory-printed"):
        size = float(signal.data.get("allocated_bytes") or signal.data.get("reserved_bytes") or 0)
        if signal.data.get("peak"):
            peak = max(peak or 0.0, size)
        else:
            step = max(step or 0.0, size)
    for signal in evidence.find("pools"):
        if failed is None and signal.data.get("allocated_bytes"):
            peak = max(peak or 0.0, float(signal.data["allocated_bytes"]))
    worked = tuple(
        (str(s.data["field"]), int(s.data["value"]), s.data.get("shown_bytes")) for s in evidence.find("worked-at")
    )
    running = next((float(s.data["shown_bytes"]) for s in evidence.find("in-use")), None)
    if running is not None and not worked:
        worked = (("", 0, running),)
    if failed is None and peak is None and step is None and logits is None and not worked:
        return None
    stepped = step is not None or peak is not None or bool(failure is not None and (failure.step or 0) > 1)
    room = float(capacity) if capacity else None
    return Observed(failed, float(held) if held else None, peak, step, phase, stepped, worked, room, logits)


_AFTER_STEPS: Final = frozenset(
    {"fails-after-long-run", "fails-at-same-step", "fails-at-random-step", "grows-with-steps"}
)


_BEFORE_STEPS: Final = ("load", "optimizer-init", "engine-init")
"""Phases of a failure before any step; bars of what is loaded count no steps."""


def trained_before(evidence: Evidence) -> bool:
    """Whether steps of training went well before the failure: weights and states were on the card then."""
    said = {statement.name for statement in evidence.statements}
    root = evidence.root
    if root is not None and root.phase in _BEFORE_STEPS:
        return False
    return bool(root is not None and (root.step or 0) > 1) or (
        not said.isdisjoint(_AFTER_STEPS) and "fails-at-first-step" not in said
    )


def failed_in(failure: Failure) -> str:
    """The phase of an estimate in which it failed: a pass for log-probabilities is one of its own."""
    passes = failure.phase in ("forward", "loss", "unknown") and scores_rollouts(failure.frames)
    return "log-probabilities" if passes else failure.phase


def _copies_logits(failure: Failure) -> bool:
    """Whether the innermost line that is shown copies the logits in fp32."""
    shown = [frame.code for frame in failure.frames if frame.code]
    return bool(shown) and any(part in shown[-1] for part in _UPCAST)


def implied_length(job: Job, vocabulary: int, seen: Observed) -> int | None:
    """Tokens per sample that a request for the logits means; ``None`` where it means none."""
    if not seen.logits_bytes or job.objective not in _ONE_PASS or job.fused_ce:
        return None
    samples = (job.micro_batch or 1) * (2 if job.objective in _PAIRED else 1)
    tokens = seen.logits_bytes / (_FP32_BYTES * vocabulary * samples)
    return round(tokens) if tokens >= 1 else None


def likelihood(estimate: Estimate, job: Job, vocabulary: int, seen: Observed) -> float:
    """Log-likelihood of the figures under an estimate of a completed job, up to a constant."""
    total = 0.0
    static = estimate.phases["load"].total_bytes if "load" in estimate.phases else 0.0
    if seen.stepped and "save" in estimate.phases:
        static = min(static + most_of(estimate, "optimizer states"), estimate.phases["save"].total_bytes)
    if seen.failed_bytes:
        total += _reached(until_failure(estimate, seen.phase), seen.failed_bytes)
        if seen.phase not in ("load", "unknown") or seen.stepped:
            total += _within(static, seen.failed_bytes)
        if seen.capacity_bytes:
            made = 0.0 if seen.stepped or seen.phase != "optimizer-step" else most_of(estimate, "optimizer states")
            before = [estimate.phases[name].total_bytes for name in _phases(estimate, seen.phase)[:-1]]
            total += _within(max(before, default=0.0) - made, seen.capacity_bytes)  # the first step makes states
    if seen.peak_bytes:
        total -= 0.5 * (math.log(max(estimate.allocated_bytes, 1.0) / seen.peak_bytes) / _PEAK_SIGMA) ** 2
    if seen.step_bytes:
        total += _reached(estimate.allocated_bytes, seen.step_bytes) + _within(static, seen.step_bytes)
    length = implied_length(job, vocabulary, seen)
    if length and job.seq_len and not job.packing:
        total += max(_OTHER_TENSOR, -0.5 * (math.log(job.seq_len / length) / _REQUEST_SIGMA) ** 2)
    return total


def went_well(estimate: Estimate, shown_bytes: float | None = None) -> float:
    """Log-likelihood that a run went well on its card, and was seen to hold this much."""
    total = 0.0
    if shown_bytes:
        total -= 0.5 * (math.log(max(estimate.process_bytes, 1.0) / shown_bytes) / _PEAK_SIGMA) ** 2
    if estimate.capacity_bytes and estimate.needed_bytes:
        over = math.log(estimate.needed_bytes / estimate.capacity_bytes)
        total -= 0.5 * (max(0.0, over) / _SHORT_SIGMA) ** 2
    return total


def until_failure(estimate: Estimate, phase: str) -> float:
    """What is held up to the failure: the peak up to and with its phase, of an optimizer's step what it holds itself.

    The whole run's peak where the phase is not known.
    """
    if phase == "optimizer-step" and phase in estimate.phases:  # the activations are gone by then
        return estimate.phases[phase].total_bytes
    if phase == "optimizer-init" and "load" in estimate.phases:  # an engine makes its states before the first step
        return estimate.phases["load"].total_bytes + most_of(estimate, "optimizer states")
    return max((estimate.phases[n].total_bytes for n in _phases(estimate, phase)), default=estimate.allocated_bytes)


def _phases(estimate: Estimate, phase: str) -> list[str]:
    name = {"optimizer-init": "load", "eval": "evaluation"}.get(phase, phase)
    if name not in estimate.phases:
        return []
    return [n for n in PHASES[: PHASES.index(name) + 1] if n in estimate.phases]


def _reached(predicted: float, seen: float) -> float:
    """The model must reach what was held; how far above it lies says little."""
    ratio = math.log(max(predicted, 1.0) / seen)
    if ratio < 0:
        return -0.5 * (ratio / _SHORT_SIGMA) ** 2
    return -max(0.0, ratio - _FREE) / _ABOVE_SCALE


def _within(static: float, seen: float) -> float:
    """What was held without a failure cannot be more than there was."""
    over = math.log(max(static, 1.0) / seen)
    return 0.0 if over <= 0 else -0.5 * (over / _STATIC_SIGMA) ** 2
