"""Moves: what the remedies offer on a job, and how several are put together into one set of job fields.

Fields that follow from others (accumulation steps, data-parallel size) are settled here, so that every derived job
keeps the global batch, whichever remedies it combines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from oomdoc.diagnosis.fixes import REMEDIES, Context, Remedy, Variant
from oomdoc.diagnosis.fixes._job import data_parallel, global_batch, is_serving, kinds_of, world_size
from oomdoc.diagnosis.fixes.hardware import suits
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
    if remedy.name in context.without or not remedy.kinds & kinds_of(job):
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
        accumulation = max(1, -(-batch // step))
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
