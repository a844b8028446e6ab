"""Serve over more GPUs of the machine: weights and KV heads are split."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.diagnosis.fixes.tensor_parallel import sizes
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if not context.has("serving.tp"):
        return
    now = job.tp or 1
    machine = max(job.gpus or 1, world_size(job)) + context.spare_gpus
    for size in sizes(job, context, now, machine):
        yield Variant(fields={"tp": size, "world": max(size * (job.pp or 1), world_size(job))}, effort=0.8)


REMEDY = Remedy(
    name="serving-tensor-parallel",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("weights", "kv"),
)
