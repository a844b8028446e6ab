"""Expert parallelism: the routed experts of a mixture-of-experts model split over the data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import data_parallel
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    experts = context.shape.dims.experts if context.shape is not None else 0
    if not experts or not context.has("ep"):
        return
    size, replicas = (job.ep or 1) * 2, data_parallel(job)
    while size <= min(replicas, experts, 64):
        if replicas % size == 0 and experts % size == 0:
            yield Variant(fields={"ep": size}, effort=1.0)
        size *= 2


REMEDY = Remedy(
    name="expert-parallel",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("weights", "gradients", "optimizer states", "master", "experts"),
)
