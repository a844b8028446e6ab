"""What the observed figures imply of fields that nobody stated: a small Bayesian search over the memory model.

Every unstated field has a prior over its usual values, the framework's own default the likeliest; a stated switch
may turn out not to be in effect, at a small prior. A candidate is priced, and its likelihood is that of the figures
that the run printed: what was allocated and asked for when it failed, what it held at a step. Where nothing plausible
explains the figures, that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final

from oomdoc.diagnosis.result import Conflict, Inferred
from oomdoc.evidence import Evidence
from oomdoc.messages import Message, say
from oomkb.errors import ODD, OomdocError
from oomkb.memory.estimate import PHASES, Estimate
from oomkb.memory.job import Assumption, Job
from oomkb.pricing import Priced, price
from oomkb.units import GIB

__all__ = ["IMPLIED", "Inference", "Observed", "infer", "observed_in"]

IMPLIED: Final = "the observed figures imply it"
_SHORT_SIGMA: Final = 0.12
"""Relative error of the model where it falls short of what was held (bench/memory_accuracy)."""
_ABOVE_SCALE: Final = 0.6
"""A run may fail on the way to a peak that is still higher: log-odds per e-fold above what was seen."""
_FREE: Final = 0.1
_STATIC_SIGMA: Final = 0.08
_PEAK_SIGMA: Final = 0.15
_AGREES: Final = -2.5
"""Log-likelihood from which the figures are taken to agree with the job as it is completed."""
_EXPLAINED: Final = -7.0
_TELLING: Final = 3.0
"""Log-odds from which a figure is said to decide a field."""
_LEAST_BYTES: Final = 0.5 * GIB
_MOST_PAIRS: Final = 60
_SHARE: Final = 0.5
_LATE: Final = frozenset({"backward", "optimizer-step", "optimizer-init", "save", "eval"})


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
    worked: tuple[tuple[str, int], ...] = ()
    """Sizes at which the run went well: a job field and its value."""

    @property
    def figure_bytes(self) -> float | None:
        """The figure that people compare with."""
        return self.peak_bytes or self.failed_bytes or self.step_bytes


@dataclass(frozen=True, slots=True)
class Inference:
    """The job with what was inferred, priced."""

    job: Job
    priced: Priced
    inferred: tuple[Inferred, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    explained: bool = True


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    value: Any
    log_prior: float
    fields: Mapping[str, Any]
    stated: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    options: tuple[_Option, ...]
    priced: Priced
    score: float
    likelihood: float


def observed_in(evidence: Evidence) -> Observed | None:
    """The figures of a run; ``None`` where it printed none."""
    failure = evidence.root
    held = failed = None
    phase = "unknown"
    if failure is not None and failure.kind == "device":
        held, phase = failure.allocated_bytes, failure.phase
        if held is None and failure.reserved_bytes is not None:
            held = failure.reserved_bytes - (failure.reserved_unallocated_bytes or 0)
        if held is not None and held >= _LEAST_BYTES:
            failed = float(held + (failure.requested_bytes or 0))
    peak = step = None
    for signal in evidence.find("memory-printed"):
        size = float(signal.data.get("allocated_bytes") or signal.data.get("reserved_bytes") or 0)
        if signal.data.get("peak"):
            peak = max(peak or 0.0, size)
        else:
            step = max(step or 0.0, size)
    worked = tuple((str(s.data["field"]), int(s.data["value"])) for s in evidence.find("worked-at"))
    if failed is None and peak is None and step is None and not worked:
        return None
    stepped = step is not None or peak is not None or bool(failure is not None and (failure.step or 0) > 1)
    return Observed(failed, float(held) if held else None, peak, step, phase, stepped, worked)


def infer(evidence: Evidence, job: Job, priced: Priced) -> Inference:
    """The job with the unstated fields that its figures imply."""
    seen = observed_in(evidence)
    root = evidence.root
    others = root is not None and (root.other_process_bytes or 0) > GIB
    unseen = priced.shape.vision is not None and job.images is None and job.max_pixels is None
    if seen is not None:
        job, priced = _at_failure(evidence, job, priced)
    if seen is None or others or unseen or priced.job.objective == "inference" or priced.job.rollout is not None:
        return Inference(job, priced)
    first = _likelihood(priced.estimate, seen) + _went_well(job, {}, seen)
    base = _Candidate((), priced, first, first)
    if base.likelihood >= _AGREES:
        return _confirmed(job, base, seen)
    tried = _search(job, base, seen)
    best = max(tried, key=lambda c: c.score)
    if best.likelihood < _EXPLAINED:
        return Inference(job, priced, conflicts=(_unexplained(priced.estimate, seen),), explained=False)
    if best is base:
        return Inference(job, priced)
    return _concluded(job, base, best, tried, seen)


def _likelihood(estimate: Estimate, seen: Observed) -> float:
    """Log-likelihood of the figures, up to a constant."""
    total = 0.0
    static = estimate.phases["load"].total_bytes if "load" in estimate.phases else 0.0
    if seen.stepped and "save" in estimate.phases:
        static = min(static + _states(estimate), estimate.phases["save"].total_bytes)
    if seen.failed_bytes:
        total += _reached(_until(estimate, seen.phase), seen.failed_bytes)
        if seen.phase not in ("load", "unknown") or seen.stepped:
            total += _within(static, seen.failed_bytes)
    if seen.peak_bytes:
        total -= 0.5 * (math.log(max(estimate.allocated_bytes, 1.0) / seen.peak_bytes) / _PEAK_SIGMA) ** 2
    if seen.step_bytes:
        total += _reached(estimate.allocated_bytes, seen.step_bytes) + _within(static, seen.step_bytes)
    return total


def _at_failure(evidence: Evidence, job: Job, priced: Priced) -> tuple[Job, Priced]:
    """The job at the size at which it failed, where the one at which it works was read instead."""
    for signal in evidence.find("worked-at"):
        name, failed = str(signal.data["field"]), signal.data.get("failed")
        if failed and job.get(name) in (None, signal.data["value"]) and failed != job.get(name):
            try:
                job = job.with_fields({name: failed})
                priced = price(job)
            except (OomdocError, *ODD):
                continue
    return job, priced


def _went_well(job: Job, fields: Mapping[str, Any], seen: Observed) -> float:
    """Log-likelihood of what went well: there the process must have fitted."""
    total = 0.0
    for name, value in seen.worked:
        try:
            found = price(job.with_fields({**fields, name: value})).estimate
        except (OomdocError, *ODD):
            continue
        if found.capacity_bytes and found.needed_bytes:
            over = math.log(found.needed_bytes / found.capacity_bytes)
            total -= 0.5 * (max(0.0, over) / _SHORT_SIGMA) ** 2
    return total


def _states(estimate: Estimate) -> float:
    return max((p.terms_bytes.get("optimizer states", 0.0) for p in estimate.phases.values()), default=0.0)


def _until(estimate: Estimate, phase: str) -> float:
    """The peak up to the phase in which it failed."""
    name = {"optimizer-init": "optimizer-step", "eval": "evaluation"}.get(phase, phase)
    if name not in estimate.phases:
        return estimate.allocated_bytes
    before = PHASES[: PHASES.index(name) + 1]
    return max(estimate.phases[n].total_bytes for n in before if n in estimate.phases)


def _reached(predicted: float, seen: float) -> float:
    """The model must reach what was held; how far above it lies says little."""
    ratio = math.log(max(predicted, 1.0) / seen)
    if ratio < 0:
        return -0.5 * (ratio / _SHORT_SIGMA) ** 2
    return -max(0.0, ratio - _FREE) / _ABOVE_SCALE


def _within(static: float, seen: float) -> float:
    """What stays through the step cannot be more than was ever held."""
    over = math.log(max(static, 1.0) / seen)
    return 0.0 if over <= 0 else -0.5 * (over / _STATIC_SIGMA) ** 2


def _options(job: Job, completed: Job) -> Iterator[list[_Option]]:
    """The alternatives of each field that may be otherwise than completed, with their priors."""

    def free(name: str) -> bool:
        return job.get(name) is None

    def several(name: str, values: Sequence[Any], log_prior: float) -> list[_Option]:
        now = completed.get(name)
        return [_Option(name, v, log_prior, {name: v}) for v in values if v != now]

    switched = completed.grad_ckpt in (None, False)
    prior = math.log(0.3) if free("grad_ckpt") else math.log(0.05)
    yield [_Option("grad_ckpt", switched, prior, {"grad_ckpt": switched}, stated=not free("grad_ckpt"))]
    if free("micro_batch"):
        yield several("micro_batch", (1, 2, 4, 8, 16), math.log(0.12))
    if free("seq_len"):
        yield several("seq_len", (512, 1024, 2048, 4096, 8192, 16384), math.log(0.12))
    elif (completed.seq_len or 0) >= 512 and not completed.packing:
        parts = [(completed.seq_len or 0) // n for n in (2, 4)]
        yield [_Option("padding", n, math.log(0.2), {"seq_len": n}) for n in parts]
    if free("world") and free("gpus"):
        shards: list[str | None] = [None] if not free("sharding") else ["zero2", "zero3"]
        yield [
            _Option("world", n, math.log(0.1), {"world": n, "gpus": min(n, 8), "nodes": max(1, n // 8), "dp": None}
                    | ({"sharding": s} if s else {}))
            for n in (2, 4, 8, 16)
            for s in shards
        ]  # fmt: skip
    elif free("sharding") and (completed.world or 1) > 1:
        yield several("sharding", ("zero2", "zero3", "fsdp"), math.log(0.15))
    if free("fused_ce"):
        yield [_Option("fused_ce", not completed.fused_ce, math.log(0.12), {"fused_ce": not completed.fused_ce})]
    if free("param_dtype") and not (completed.sharding or "").startswith("zero"):
        other = "bf16" if completed.param_dtype == "fp32" else "fp32"
        yield [_Option("param_dtype", other, math.log(0.25), {"param_dtype": other})]


def _search(job: Job, base: _Candidate, seen: Observed) -> list[_Candidate]:
    """The base, every single alternative, and pairs of the better ones."""
    groups = list(_options(job, base.priced.job))
    singles = [c for group in groups for option in group if (c := _priced(job, (option,), seen)) is not None]
    tried = [base, *singles]
    if max(c.likelihood for c in tried) >= _AGREES:
        return tried
    ranked = sorted(singles, key=lambda c: -c.score)[:14]
    pairs = [
        (a.options[0], b.options[0]) for a, b in combinations(ranked, 2) if a.options[0].field != b.options[0].field
    ]
    tried += [c for pair in pairs[:_MOST_PAIRS] if (c := _priced(job, pair, seen)) is not None]
    return tried


def _priced(job: Job, options: tuple[_Option, ...], seen: Observed) -> _Candidate | None:
    fields = {n: v for option in options for n, v in option.fields.items()}
    try:
        found = price(job.with_fields(fields))
    except (OomdocError, *ODD):
        return None
    likelihood = _likelihood(found.estimate, seen) + _went_well(job, fields, seen)
    return _Candidate(options, found, likelihood + sum(o.log_prior for o in options), likelihood)


def _confirmed(job: Job, base: _Candidate, seen: Observed) -> Inference:
    """The figures agree; where they also rule out the other state of checkpointing, that is known now."""
    completed = base.priced.job
    if job.grad_ckpt is not None or not isinstance(completed.grad_ckpt, bool):
        return Inference(job, base.priced)
    option = _Option("grad_ckpt", not completed.grad_ckpt, 0.0, {"grad_ckpt": not completed.grad_ckpt})
    other = _priced(job, (option,), seen)
    if other is None or base.likelihood - other.likelihood < _TELLING:
        return Inference(job, base.priced)
    why = _why("grad_ckpt", completed.grad_ckpt, base.priced.estimate, other.priced.estimate, seen)
    odds = 1 / (1 + math.exp(other.likelihood - base.likelihood))
    known = job.assuming({"grad_ckpt": Assumption(completed.grad_ckpt, IMPLIED)})
    told = replace(completed, assumed=MappingProxyType({**completed.assumed, "grad_ckpt": known.assumed["grad_ckpt"]}))
    return Inference(known, replace(base.priced, job=told), (Inferred("grad_ckpt", completed.grad_ckpt, odds, why),))


def _concluded(job: Job, base: _Candidate, best: _Candidate, tried: Sequence[_Candidate], seen: Observed) -> Inference:
    """What the best candidate says beside the base, each with its share of all that was tried."""
    top = max(c.score for c in tried)
    weights = {id(c): math.exp(c.score - top) for c in tried}
    whole = sum(weights.values())
    inferred: list[Inferred] = []
    conflicts: list[Conflict] = []
    assumed: dict[str, Assumption] = {}
    for option in best.options:
        share = sum(
            weights[id(c)] for c in tried if any(o.field == option.field and o.value == option.value for o in c.options)
        )
        why = _why(option.field, option.value, best.priced.estimate, base.priced.estimate, seen)
        if option.stated:
            conflicts.append(Conflict(option.field, base.priced.job.get(option.field), option.value, why))
        else:
            inferred.append(Inferred(option.field, option.value, share / whole, why))
        assumed |= {n: Assumption(v, IMPLIED) for n, v in option.fields.items() if v is not None}
    cleared = job.with_fields({n: None for o in best.options for n in o.fields if n != "dp" or job.dp is not None})
    found = cleared.assuming(assumed)
    try:
        priced = price(found)
    except (OomdocError, *ODD):
        priced = best.priced
    return Inference(found, replace(priced), tuple(inferred), tuple(conflicts))


def _why(field: str, value: Any, with_: Estimate, without: Estimate, seen: Observed) -> Message:
    key = f"inferred.{field.replace('_', '-')}"
    if isinstance(value, bool):
        key += "-on" if value else "-off"
    return say(
        key,
        value=f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value,
        with_bytes=with_.allocated_bytes,
        without_bytes=without.allocated_bytes,
        seen=_shown(seen),
    )


def _shown(seen: Observed) -> Message:
    """The figure, or the size at which the run went well."""
    if seen.figure_bytes or not seen.worked:
        return say("inferred.seen", seen_bytes=seen.figure_bytes or 0.0)
    field, value = seen.worked[0]
    return say("inferred.worked", field=field, value=f"{value:,}")


def _unexplained(estimate: Estimate, seen: Observed) -> Conflict:
    why = say("inferred.unexplained", predicted_bytes=estimate.allocated_bytes, seen_bytes=seen.figure_bytes or 0.0)
    return Conflict("", round(estimate.allocated_bytes / GIB, 2), round((seen.figure_bytes or 0.0) / GIB, 2), why)
