"""More GPUs in the serving machine, used by tensor parallelism."""

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
    machine = max(job.gpus or 1, world_size(job)) + context.spare_gpus
    for size in sizes(job, context, job.tp or 1, 8):
        if size > machine:
            fields = {"tp": size, "world": size * (job.pp or 1), "gpus": size, "dp": None}
            yield Variant(fields=fields, effort=5.0 + size / 2)


REMEDY = Remedy(
    name="serving-more-gpus",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("weights", "kv"),
    hardware=True,
)
