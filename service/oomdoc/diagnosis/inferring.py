"""What the observed figures imply of fields that nobody stated: a small Bayesian search over the memory model.

Every unstated field has a prior over its usual values, the framework's own default the likeliest; a stated switch
may turn out not to be in effect, at a small prior. A candidate is priced, and its likelihood is that of the figures
that the run printed: what was allocated and asked for when it failed, what it held at a step. Where nothing plausible
explains the figures, that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from oomdoc.diagnosis.observed import (
    Observed,
    implied_length,
    likelihood,
    observed_in,
    until_failure,
    went_well,
)
from oomdoc.diagnosis.planning.sets import cheapest_sets
from oomdoc.diagnosis.result import IMPLIED, Conflict, Inference, Inferred
from oomdoc.diagnosis.run_of_evidence import STAGE_OPEN
from oomdoc.diagnosis.usual_need import WHY
from oomdoc.diagnosis.view import trained_beyond
from oomdoc.diagnosis.without_effect import is_one_unit
from oomdoc.evidence import Evidence, Failure, Message, say
from oomkb.dataclass import dataclass
from oomkb.frameworks import PLAIN
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Assumption, Job
from oomkb.pricing import Priced, price_if_possible
from oomkb.units import GIB

_AGREES: Final = -2.5
"""Log-likelihood from which the figures are taken to agree with the job as it is completed."""
_EXPLAINED: Final = -7.0
_MEETS: Final = math.log(1.3)
"""How far, as a logarithm, a candidate may be from the figure that it is said to explain."""
_MIN_LOG_ODDS: Final = 3.0
"""Log-odds from which a figure is said to decide a field."""
_MAX_SINGLES: Final = 14
_MAX_PAIRS: Final = 60
_SHARE: Final = 0.5


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
    shown_bytes: float | None
    """What the model has for the figure that is shown."""


def infer(evidence: Evidence, job: Job, priced: Priced) -> Inference:
    """The job with the unstated fields that its figures imply."""
    seen = observed_in(evidence)
    if seen is None and (contradicted := _trained_though_too_large(evidence, priced)) is not None:
        return Inference(job, priced, conflicts=(contradicted,))
    root = evidence.root
    others = root is not None and (root.other_process_bytes or 0) > GIB
    unseen = priced.shape.vision is not None and job.images is None and job.max_pixels is None
    if seen is None or seen.phase == "eval" or is_one_unit(evidence):  # none of it is a training step's over layers
        return Inference(job, priced)
    if not others and not unseen and priced.job.objective == "inference":
        return _loaded_wider(job, priced, seen)
    if others or unseen:
        counted = others or seen.phase == "load"
        return Inference(job, priced, conflicts=() if counted else _without_images(priced.estimate, root))
    if priced.job.rollout is not None and _reaches_estimate(priced.estimate, seen):
        return _beside_rollouts(job, priced, seen)
    first, shown = _likelihood(job, {}, priced, seen)
    base = _Candidate((), priced, first, first, shown)
    if base.likelihood >= _AGREES:
        return _confirmed(job, base, seen)
    tried = _search(job, base, seen)
    best = max(tried, key=lambda c: c.score)
    filling = seen.phase in _FILLED_BIT_BY_BIT or (seen.phase == "forward" and job.grad_ckpt is False)
    if filling and (base.shown_bytes or 0.0) >= (seen.figure_bytes or math.inf):
        return Inference(job, priced)
    if best.likelihood < _EXPLAINED:
        return Inference(job, priced, conflicts=_unexplained(priced.estimate, seen))
    if best is base or not _decides(seen, best, base):
        return Inference(job, priced)
    return _concluded(job, base, best, tried, seen)


def _without_images(estimate: Estimate, root: Failure | None) -> tuple[Conflict, ...]:
    """That an estimate without images is far below what the card had to hold: all that was in use, and the request."""
    if root is None or root.capacity_bytes is None or root.free_bytes is None:
        return ()
    reached = float(root.capacity_bytes - root.free_bytes + (root.requested_bytes or 0))
    if reached <= _IMAGES_DECIDE * estimate.process_bytes:
        return ()
    why = say("inferred.images", predicted_bytes=estimate.process_bytes, seen_bytes=reached)
    return (_at_odds(estimate.process_bytes, reached, why),)


def _at_odds(needed_bytes: float, seen_bytes: float, why: Message) -> Conflict:
    """That what a run would need is not what was seen, whatever its open fields are."""
    return Conflict("", round(needed_bytes / GIB, 2), round(seen_bytes / GIB, 2), why)


def _loaded_wider(job: Job, priced: Priced, seen: Observed) -> Inference:
    """Weights that were loaded in fp32, as ``from_pretrained`` does where no dtype is given (transformers before 5):
    nothing else of a model that is only run takes just twice as much.
    """
    held = next((held for field, _, held in seen.worked if held and not field), None)
    stated = job.param_dtype is not None and "param_dtype" not in job.assumed
    plain = job.framework in (None, PLAIN)  # an engine takes its share whatever the weights are
    if held is None or stated or job.quant not in (None, "none") or not plain:
        return Inference(job, priced)
    fields = {"param_dtype": "fp32", "framework": PLAIN}
    wide = _priced(job, (_Option("param_dtype", "fp32", 0.0, fields),), seen)
    half = price_if_possible(job, {"framework": PLAIN, "param_dtype": "bf16"})
    base = _Candidate((), priced, 0.0, 0.0, half.estimate.process_bytes if half is not None else None)
    if wide is None or not wide.shown_bytes or abs(math.log(wide.shown_bytes / held)) > _SAME:
        return Inference(job, priced)
    why = _why("param_dtype", "fp32", wide, base, seen)
    found = job.assuming({name: Assumption(value, IMPLIED) for name, value in fields.items()})
    return Inference(found, price_if_possible(found, {}) or wide.priced, (Inferred("param_dtype", "fp32", 0.9, why),))


_IMAGES_DECIDE: Final = 1.25
"""How many times the estimate without images a run must have reached for these to be what the estimate lacks."""
_SAME: Final = math.log(1.08)
"""How far, as a logarithm, what a model holds that is only run may be from a figure that it explains."""


def _trained_though_too_large(evidence: Evidence, priced: Priced) -> Conflict | None:
    """That states which the card cannot hold contradict the steps that were trained: they are split, or smaller."""
    job, capacity = priced.job, priced.estimate.capacity_bytes
    open_ = job.sharding in (None, "none", "ddp") or "sharding" in job.assumed
    if not open_ or not capacity or job.objective == "inference" or job.offload:
        return None
    states = trained_beyond(evidence, priced.estimate, capacity)
    if states is None:
        return None
    why = say("inferred.trained", states_bytes=states, capacity_bytes=capacity)
    return _at_odds(states, capacity, why)


def _decides(seen: Observed, for_it: _Candidate, against: _Candidate) -> bool:
    """Whether the figure speaks for one candidate: it is about its own, or more than the other ever holds.

    A run that dies early shows less than its peak: such a figure rules out what is smaller, and decides nothing else.
    """
    held = next((held for _, _, held in seen.worked if held), None)
    if not seen.figure_bytes and held and for_it.shown_bytes:  # what it held while it ran well
        return abs(math.log(for_it.shown_bytes / held)) <= _MEETS
    if not seen.figure_bytes or not for_it.shown_bytes:
        return True
    if seen.phase in _FILLED_BIT_BY_BIT and (against.shown_bytes or 0.0) >= seen.figure_bytes:
        return False
    if abs(math.log(for_it.shown_bytes / seen.figure_bytes)) <= _MEETS:
        return True
    reaches = math.log(seen.figure_bytes / for_it.shown_bytes) <= _MEETS
    return reaches and bool(against.shown_bytes) and math.log(seen.figure_bytes / (against.shown_bytes or 1.0)) > _MEETS


_FILLED_BIT_BY_BIT: Final = ("load", "optimizer-init", "optimizer-step")
"""Weights and states come one parameter after the other, up to what the card holds: a larger need is not refuted."""


def _reaches_estimate(estimate: Estimate, seen: Observed) -> bool:
    """Whether the run held no less than the estimate has for it.

    Beside an engine on the same card, what is held beyond the estimate may be the engine's, and says nothing of the
    trainer; what is held below it does.
    """
    return not seen.failed_bytes or until_failure(estimate, seen.phase) <= seen.failed_bytes


def _beside_rollouts(job: Job, priced: Priced, seen: Observed) -> Inference:
    """Nothing is inferred; figures that are far above the estimate are said."""
    failed = seen.failed_bytes
    if not failed or seen.phase == "unknown" or until_failure(priced.estimate, seen.phase) >= _HALF * failed:
        return Inference(job, priced)
    return Inference(job, priced, conflicts=_unexplained(priced.estimate, seen))


_HALF: Final = 0.5


def _likelihood(job: Job, fields: Mapping[str, Any], priced: Priced, seen: Observed) -> tuple[float, float | None]:
    """That of all figures, and what the model has for the figure that is shown.

    The figures are the failed run's, and those of the sizes at which it went well.
    """
    total = likelihood(priced.estimate, priced.job, priced.shape.dims.vocab, seen)
    shown = _compared(priced.estimate, seen) if seen.figure_bytes else None
    for name, value, held in seen.worked:
        found = price_if_possible(job, {**fields, name: value} if name else fields)
        if found is not None:
            total += went_well(found.estimate, held)
            shown = shown or (found.estimate.process_bytes if held else found.estimate.needed_bytes)
    return total, shown


def _options(job: Job, priced: Priced, seen: Observed) -> Iterator[list[_Option]]:
    """The alternatives of each field that may be otherwise than completed, with their priors."""
    completed = priced.job
    length = implied_length(completed, priced.shape.dims.vocab, seen)

    def free(name: str) -> bool:
        return job.get(name) is None or (name in job.assumed and job.assumed[name].why in (WHY, STAGE_OPEN))

    def several(name: str, values: Sequence[Any], log_prior: float) -> list[_Option]:
        now = completed.get(name)
        return [_Option(name, v, log_prior, {name: v}) for v in values if v != now]

    switched = completed.grad_ckpt in (None, False)
    prior = math.log(0.3) if free("grad_ckpt") else math.log(0.05)
    yield [_Option("grad_ckpt", switched, prior, {"grad_ckpt": switched}, stated=not free("grad_ckpt"))]
    if free("micro_batch"):
        yield several("micro_batch", (1, 2, 4, 8, 16), math.log(0.12))
    if free("seq_len"):
        usual = (512, 1024, 2048, 4096, 8192, 16384)
        yield several("seq_len", (length,) if length else usual, math.log(0.5 if length else 0.12))
    elif (completed.seq_len or 0) >= 512 and not completed.packing:
        # The peak of the steps so far is that of the longest of their samples, the limit comes later or never.
        parts = [(completed.seq_len or 0) // n for n in ((2, 4, 8) if seen.peak_bytes else (2, 4))]
        shorter = [n for n in ([length] if length else parts) if n < (completed.seq_len or 0)]
        yield [_Option("padding", n, math.log(0.2), {"seq_len": n}) for n in shorter]
    if free("world") and free("gpus"):
        # Where nobody speaks of several processes, and nothing that only several have is set, there is one.
        if not free("sharding") or seen.failed_bytes:
            shards: list[str | None] = [None] if not free("sharding") else ["zero2", "zero3"]
            yield [
                _Option("world", n, log_prior, {"world": n, "gpus": min(n, 8), "nodes": max(1, n // 8), "dp": None}
                        | ({"sharding": s} if s else {}))
                for n, log_prior in _WORLDS
                for s in shards
            ]  # fmt: skip
    elif free("sharding") and (completed.world or 1) > 1 and (completed.pp or 1) == 1:
        yield several("sharding", ("zero2", "zero3", "fsdp"), math.log(0.15))
    if free("fused_ce") and (completed.fused_ce or not seen.logits_bytes):  # whole logits were seen
        yield [_Option("fused_ce", not completed.fused_ce, math.log(0.12), {"fused_ce": not completed.fused_ce})]
    if (free("param_dtype") or "param_dtype" in job.assumed) and not (completed.sharding or "").startswith("zero"):
        other = "bf16" if completed.param_dtype == "fp32" else "fp32"
        yield [_Option("param_dtype", other, math.log(0.25), {"param_dtype": other})]


_WORLDS: Final = tuple((n, math.log(prior)) for n, prior in ((2, 0.07), (4, 0.07), (8, 0.07), (16, 0.01)))
"""Numbers of processes that a run may have had of which nobody speaks, with their priors."""
_MIN_PRIOR: Final = math.log(0.06)
"""Of a single alternative that agrees: below it pairs of likelier ones are tried as well."""


def _search(job: Job, base: _Candidate, seen: Observed) -> list[_Candidate]:
    """The base, every single alternative, and pairs of the better ones."""
    groups = list(_options(job, base.priced, seen))
    singles = [c for group in groups for option in group if (c := _priced(job, (option,), seen)) is not None]
    tried = [base, *singles]
    if any(c.likelihood >= _AGREES and c.score - c.likelihood >= _MIN_PRIOR for c in tried):
        return tried
    ranked = sorted(singles, key=lambda c: -c.score)[:_MAX_SINGLES]
    options = [c.options[0] for c in ranked]
    pairs = cheapest_sets([-c.score for c in ranked], (2,), lambda a, b: options[a].field != options[b].field)
    found = (_priced(job, tuple(options[i] for i in pair), seen) for pair in islice(pairs, _MAX_PAIRS))
    return [*tried, *(c for c in found if c is not None)]


def _priced(job: Job, options: tuple[_Option, ...], seen: Observed) -> _Candidate | None:
    fields = {n: v for option in options for n, v in option.fields.items()}
    found = price_if_possible(job, fields)
    if found is None:
        return None
    agreement, shown = _likelihood(job, fields, found, seen)
    return _Candidate(options, found, agreement + sum(o.log_prior for o in options), agreement, shown)


def _confirmed(job: Job, base: _Candidate, seen: Observed) -> Inference:
    """The figures agree; where they also rule out the other state of checkpointing, that is known now."""
    completed = base.priced.job
    if job.grad_ckpt is not None or not isinstance(completed.grad_ckpt, bool):
        return Inference(job, base.priced)
    option = _Option("grad_ckpt", not completed.grad_ckpt, 0.0, {"grad_ckpt": not completed.grad_ckpt})
    other = _priced(job, (option,), seen)
    if other is None or base.likelihood - other.likelihood < _MIN_LOG_ODDS or not _decides(seen, base, other):
        return Inference(job, base.priced)
    why = _why("grad_ckpt", completed.grad_ckpt, base, other, seen)
    odds = 1 / (1 + math.exp(other.likelihood - base.likelihood))
    known = job.assuming({"grad_ckpt": Assumption(completed.grad_ckpt, IMPLIED)})
    marked = MappingProxyType({**completed.assumed, "grad_ckpt": known.assumed["grad_ckpt"]})
    job_shown = replace(completed, assumed=marked)
    inferred = Inferred("grad_ckpt", completed.grad_ckpt, odds, why)
    return Inference(known, replace(base.priced, job=job_shown), (inferred,))


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
        why = _why(option.field, option.value, best, base, seen)
        if option.stated:
            conflicts.append(Conflict(option.field, base.priced.job.get(option.field), option.value, why))
        else:
            inferred.append(Inferred(option.field, option.value, share / whole, why))
        assumed |= {n: Assumption(v, IMPLIED) for n, v in option.fields.items() if v is not None}
    cleared = job.with_fields({n: None for o in best.options for n in o.fields if n != "dp" or job.dp is not None})
    found = cleared.assuming(assumed)
    return Inference(found, price_if_possible(found, {}) or best.priced, tuple(inferred), tuple(conflicts))


def _why(field: str, value: Any, with_: _Candidate, without: _Candidate, seen: Observed) -> Message:
    key = f"inferred.{field.replace('_', '-')}"
    if isinstance(value, bool):
        key += "-on" if value else "-off"
    return say(
        key,
        value=f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value,
        with_bytes=with_.shown_bytes or with_.priced.estimate.allocated_bytes,
        without_bytes=without.shown_bytes or without.priced.estimate.allocated_bytes,
        seen=_shown(seen),
    )


def _compared(estimate: Estimate, seen: Observed) -> float:
    """What the model has for the figure that is shown."""
    if seen.figure_bytes and seen.figure_bytes == seen.failed_bytes:
        return until_failure(estimate, seen.phase)
    return estimate.allocated_bytes


def _shown(seen: Observed) -> Message:
    """The figure, or the size at which the run went well."""
    if seen.figure_bytes or not seen.worked:
        return say("inferred.seen", seen_bytes=seen.figure_bytes or 0.0)
    field, value, held = seen.worked[0]
    if not field:
        return say("inferred.in-use", seen_bytes=held or 0.0)
    name = say(f"inferred.field-{field.replace('_', '-')}")
    if held:
        return say("inferred.worked-holding", field=name, value=f"{value:,}", seen_bytes=held)
    return say("inferred.worked", field=name, value=f"{value:,}")


def _unexplained(estimate: Estimate, seen: Observed) -> tuple[Conflict, ...]:
    """That the estimate is not what was observed; nothing where no bytes were (a batch that worked)."""
    predicted = _compared(estimate, seen)
    held = seen.figure_bytes or max((shown or 0.0 for _, _, shown in seen.worked), default=0.0)
    if not held:
        return ()
    sizes = {"predicted_bytes": predicted, "seen_bytes": held}
    if predicted < held and seen.phase in estimate.phases:
        why = say("inferred.rest", **sizes, rest_bytes=held - predicted, phase=seen.phase)
    else:
        why = say("inferred.unexplained", **sizes)
    return (_at_odds(predicted, held, why),)
