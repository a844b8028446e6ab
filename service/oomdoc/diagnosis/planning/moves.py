"""Moves: what the remedies offer on a job, how several are put together, and what they cost a person in one number.

One unit is about the annoyance of a change to a config file. Halving the speed costs four; rounding differently one and
a half; training something else four, and more the further it strays.

Fields that follow from others (accumulation steps, data-parallel size) are filled here, so that every derived job
keeps the global batch, whichever remedies it combines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from oomdoc.diagnosis.fixes import REMEDIES, Context, Remedy, Variant
from oomdoc.diagnosis.fixes._remedy import Safety, data_parallel, global_batch, is_serving, kinds_of, world_size
from oomdoc.diagnosis.fixes.hardware import suits
from oomdoc.diagnosis.result import Plan
from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.frameworks import has, supports
from oomkb.memory.job import Job
from oomkb.memory.ranks import model_parallel

# Set by many remedies without contradiction: the union is meant.
_UNION: Final = "offload"
LAYOUT: Final = frozenset({"world", "gpus", "nodes", "tp", "pp", "cp", "sp", "dp", "ep", "sharding"})
"""Fields that say how a job is spread over GPUs."""
_LAYOUT: Final = LAYOUT - {"sharding", "ep"}
# Not keys of a training script: the launcher, the hardware, another file.
_OUTSIDE: Final = _LAYOUT | {"gpu", "capacity_gib", "extra_models", "lora", "dp", "seq_len", "buckets"}


@dataclass(frozen=True)
class Move:
    """One variant of one remedy; ``needs`` names a remedy that has to come first (offload after ZeRO)."""

    remedy: Remedy
    variant: Variant
    fields: Mapping[str, Any]
    needs: str = ""
    parts: tuple[tuple[Remedy, Variant], ...] = ()

    @property
    def all_parts(self) -> tuple[tuple[Remedy, Variant], ...]:
        """The remedies it is made of, in order."""
        return self.parts or ((self.remedy, self.variant),)

    @cached_property
    def names(self) -> frozenset[str]:
        """The remedies' names."""
        return frozenset(r.name for r, _ in self.all_parts)

    @cached_property
    def key(self) -> str:
        """A stable name for ordering and memory."""
        return f"{'+'.join(r.name for r, _ in self.all_parts)}:{sorted(self.fields.items(), key=repr)!r}"


def settable(framework: str | None, fields: Mapping[str, Any], versions: Mapping[str, str]) -> bool:
    """Whether the framework has a setting for every field that is one of a script's own."""
    own = {
        name: value
        for name, value in fields.items()
        if name.partition(".")[0] not in _OUTSIDE and name not in ("rollout.colocated", "method", "autocast")
    }
    if has(framework, "spills"):
        return own.keys() <= _LOCAL_SETTINGS
    return all(supports(framework, name, value, versions) for name, value in own.items())


_LOCAL_SETTINGS: Final = frozenset(
    {"serving.max_model_len", "serving.kv_dtype", "serving.max_num_batched_tokens", "quant"}
)


def variants_on(remedy: Remedy, job: Job, context: Context) -> list[Variant]:
    """What a remedy offers on a job: nothing where its kind of job, or the framework's settings, say no."""
    if remedy.name in context.without or ("any" not in remedy.kinds and not remedy.kinds & kinds_of(job)):
        return []
    if remedy.advice and remedy.causes.isdisjoint(context.causes[:2]):
        return []
    found = []
    for variant in remedy.variants(job, context):
        changes = any(_differs(job, name, value) for name, value in variant.fields.items())
        if (variant.instruction is None and not changes) or _touches(variant, context.kept):
            continue
        if not suits(context.device, job.framework, variant.fields):
            continue
        if settable(job.framework, variant.fields, context.versions):
            found.append(variant)
    return found


def _touches(variant: Variant, kept: frozenset[str]) -> bool:
    """Whether a variant sets a field that is kept; offloading is one of what checkpointing keeps, too."""
    return not kept.isdisjoint(variant.fields) or ("offload" in kept and "offload" in variant.fields.values())


def _differs(job: Job, name: str, value: Any) -> bool:
    now = job.get(name)
    if isinstance(value, list):
        return list(now or ()) != value
    return bool(now != value)


def offered(job: Job, context: Context) -> list[Move]:
    """Every move on a job that arithmetic can judge, and those that a sharding move makes possible."""
    first = [
        Move(remedy, variant, dict(variant.fields))
        for remedy in REMEDIES
        if not remedy.advice
        for variant in variants_on(remedy, job, context)
        if variant.instruction is None
    ]
    known = {(m.remedy.name, repr(sorted(m.fields.items(), key=repr))) for m in first}
    opening = ("sharding", "tp", "quant", "serving.kv_dtype") if is_serving(job) else ("sharding", "tp")
    following = [r for r in REMEDIES if not r.advice and not r.hardware and r.name.startswith(_FOLLOWING)]
    second: list[Move] = []
    for move in first:
        if move.remedy.hardware or not any(k in move.fields for k in opening):
            continue
        after = derive(job, move.fields)
        if after is None:
            continue
        for remedy in following:
            if remedy.name == move.remedy.name:
                continue
            for variant in variants_on(remedy, after, context):
                merged = merge(move.fields, variant.fields)
                fresh = (remedy.name, repr(sorted(variant.fields.items(), key=repr))) not in known
                if merged is not None and (fresh or remedy.name in _ANEW):
                    parts = ((move.remedy, move.variant), (remedy, variant))
                    second.append(Move(remedy, variant, merged, move.remedy.name, parts))
    return first + second


_ANEW: Final = ("serving-utilization", "serving-length")
"""A server's share of the card says something only once the weights fit into it."""
_FOLLOWING: Final = ("offload", "sequence", "buckets", *_ANEW)
"""How the names of remedies begin that another one makes possible, or worth another look."""


def merge(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any] | None:
    """Both sets of fields; ``None`` where they contradict each other."""
    out = dict(a)
    for name, value in b.items():
        head = name.partition(".")[0]
        if name in out:
            if name == _UNION:
                out[name] = [*out[name], *(v for v in value if v not in out[name])]
            elif out[name] != value:
                return None
        elif name != head and head in out:
            return None
        else:
            out[name] = value
    heads = {n.partition(".")[0] for n in out if "." in n}
    return None if heads & set(out) else out


def derive(job: Job, fields: Mapping[str, Any]) -> Job | None:
    """The job with the fields set, the layout settled and the global batch kept; ``None`` for an impossible one."""
    try:
        changed = job.with_fields(fields)
    except JobError:
        return None
    if not is_serving(job) and (_LAYOUT & set(fields) or "micro_batch" in fields):
        changed = _settled(job, changed, fields)
    return changed


def _settled(before: Job, after: Job, fields: Mapping[str, Any]) -> Job:
    extra: dict[str, Any] = {}
    if _LAYOUT & set(fields) and world_size(after) % model_parallel(after) == 0:
        extra["dp"] = world_size(after) // model_parallel(after)
    batch = global_batch(before)
    if batch is not None and after.micro_batch is not None:
        step = after.micro_batch * data_parallel(after)
        filled = before.pp or 1 if "grad_accum" in before.assumed else 1  # as many as the stages, where nobody says
        accumulation = max(filled, -(-batch // step))
        if accumulation != after.grad_accum:
            extra["grad_accum"] = accumulation
    return after.with_fields(extra) if extra else after


def combined(moves: Iterable[Move]) -> dict[str, Any] | None:
    """The fields of several moves together."""
    fields: dict[str, Any] | None = {}
    for move in moves:
        if fields is None:
            return None
        fields = merge(fields, move.fields)
    return fields


def without_scores(job: Job, context: Context) -> Move | None:
    """The fused attention kernel, where the scores are what runs out: it is faster, and changes no numbers."""
    if context.causes[:1] != ("attention-scores",):
        return None
    moves = [move for move in offered(job, context) if move.remedy.name == "attention" and not move.needs]
    return min(moves, key=lambda move: move.variant.effort, default=None)


_SAFETY_COST: Final = {"same-numbers": 0.0, "changed-numerics": 1.5, "changed-training": 4.0}
CLASSES: Final = ("same-numbers", "changed-numerics", "changed-training")


@dataclass(frozen=True, slots=True)
class Goal:
    """A kind of plan: what it may touch and what it minds."""

    name: str
    allowed: frozenset[str]
    speed_weight: float
    safety_weight: float
    hardware: bool = False
    layout: bool = True
    """Whether it may change how the job is spread over the GPUs."""
    only: frozenset[str] = frozenset()
    """The remedies it may use; empty: all."""
    without: frozenset[str] = frozenset()
    """The remedies it may not use."""
    dear: tuple[str, float] = ("", 1.0)
    """The remedy whose effort it minds so many times as much: what a server's users would rather keep."""

    def allows(self, move: Move) -> bool:
        """Whether such a plan may hold this move."""
        if (self.only and not move.names <= self.only) or self.without & move.names:
            return False
        if not self.layout and LAYOUT & set(move.fields):
            return False
        classes = {_safety(r, v) for r, v in move.all_parts}
        return classes <= self.allowed and move.remedy.hardware <= self.hardware

    def within(self, wider: Goal) -> bool:
        """Whether the other kind minds the same and may use whatever this one may."""
        same = (self.speed_weight, self.safety_weight, self.hardware, self.dear)
        return (
            same == (wider.speed_weight, wider.safety_weight, wider.hardware, wider.dear)
            and self.allowed <= wider.allowed
            and self.layout <= wider.layout
            and (not wider.only or (bool(self.only) and self.only <= wider.only))
            and wider.without <= self.without
        )


_BATCH: Final = frozenset({"micro-batch"})
_SHARDING: Final = frozenset({"zero", "fsdp", "hsdp", "distributed-optimizer"})
_ALL: Final = frozenset(CLASSES)
GOALS: Final = (
    Goal("keep-numerics", frozenset({"same-numbers"}), 4.0, 1.0),
    Goal("keep-batch", frozenset({"same-numbers"}), 4.0, 1.0, without=_BATCH),
    Goal("smaller-batch", frozenset({"same-numbers"}), 4.0, 1.0, only=_BATCH),
    Goal("sharded", frozenset({"same-numbers"}), 4.0, 1.0, only=_SHARDING),
    Goal("keep-layout", frozenset({"same-numbers"}), 4.0, 1.0, layout=False),
    Goal("keep-hardware", _ALL, 4.0, 1.0),
    Goal("keep-context", _ALL, 4.0, 0.5, dear=("serving-length", 4.5)),
    Goal("keep-speed", _ALL, 16.0, 0.6),
    Goal("more-hardware", frozenset({"same-numbers"}), 2.0, 1.0, hardware=True),
)


def _safety(remedy: Remedy, variant: Variant) -> Safety:
    return variant.safety or remedy.safety


def strongest(classes: Iterable[Safety]) -> Safety:
    """The class that changes most."""
    return max(classes, key=CLASSES.index, default="same-numbers")


def safety_of(moves: Iterable[Move]) -> Safety:
    """The strongest class among them."""
    return strongest(_safety(r, v) for move in moves for r, v in move.all_parts)


def of_moves(moves: Iterable[Move], goal: Goal) -> float:
    """Effort and safety, without speed."""
    total = 0.0
    for move in moves:
        for remedy, variant in move.all_parts:
            times = goal.dear[1] if remedy.name == goal.dear[0] else 1.0
            total += times * variant.effort + goal.safety_weight * _SAFETY_COST[_safety(remedy, variant)]
    return total


def of_speed(speed: float, goal: Goal) -> float:
    """Slowness: nothing where it is as fast as before or faster."""
    return goal.speed_weight * max(0.0, -math.log2(max(speed, 1e-3)))


_MIN_RELATIVE_SPEED: Final = 0.6
"""Of the mildest plan's speed, below which a plan is too slow to come before it."""


def is_as_mild(plan: Plan, mildest: Plan) -> bool:
    """Whether a plan changes the numbers no more than the mildest one and is not much slower."""
    changes_more = CLASSES.index(plan.safety) > CLASSES.index(mildest.safety)
    return not changes_more and plan.relative_speed >= _MIN_RELATIVE_SPEED * mildest.relative_speed
