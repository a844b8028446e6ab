"""Helpers sharded like the trained model: ZeRO-3 or FSDP for the reference, reward and teacher as well."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._extra import find, rewritten
from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_ROLES = ("reference", "reward", "teacher", "critic")


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if world_size(job) < 2 or job.sharding not in ("zero3", "fsdp", "fsdp2"):
        return
    # Only where the helper is said to be unsharded: by default it follows the trained model's engine.
    if any(m.sharding in ("none", "ddp") for m in find(job, *_ROLES)) and (context.has("zero") or context.has("fsdp")):
        note = say("fixes.reference-sharding.how", sharding=job.sharding)
        fields = {"extra_models": rewritten(job, _ROLES, sharding=job.sharding)}
        yield Variant(fields=fields, effort=0.8, notes=(note,))


REMEDY = Remedy(
    name="reference-sharding",
    safety="same-numbers",
    kinds=frozenset({"preference", "rl"}),
    variants=_variants,
    reduces=("reference", "reward", "teacher", "critic", "extra"),
)
