"""The generation engine's weights split over more of the training GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.diagnosis.fixes.tensor_parallel import sizes
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    rollout = job.rollout
    if rollout is None or rollout.colocated is False or not context.has("rollout.tp"):
        return
    for size in sizes(job, context, rollout.tensor_parallel or 1, min(8, job.gpus or world_size(job))):
        yield Variant(fields={"rollout.tensor_parallel": size}, effort=0.6)


REMEDY = Remedy(
    name="rollout-tensor-parallel",
    safety="same-numbers",
    kinds=frozenset({"rl"}),
    variants=_variants,
    reduces=("rollout", "engine", "kv"),
)
