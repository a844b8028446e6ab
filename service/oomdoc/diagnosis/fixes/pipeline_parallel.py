"""Pipeline parallelism: layers split into stages on different GPUs, kept busy by many micro-batches.

Worth it only with several accumulation steps, or the pipeline stands idle most of the time. Narayanan et al. 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import model_parallel, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now, world = job.pp or 1, world_size(job)
    if not context.has("pp"):
        return
    layers = context.shape.layer_count if context.shape is not None else None
    other = model_parallel(job) // now
    size = now * 2
    while size <= min(16, world):
        if world % (size * other) == 0 and (layers is None or layers % size == 0):
            yield Variant(fields={"pp": size}, effort=1.2)
        size *= 2


REMEDY = Remedy(
    name="pipeline-parallel",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("weights", "gradients", "optimizer states", "master"),
)
