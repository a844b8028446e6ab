"""Megatron's distributed optimizer: fp32 masters and Adam's moments split over the data-parallel ranks (ZeRO-1)."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import data_parallel
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if data_parallel(job) < 2 or job.sharding not in (None, "none", "ddp"):
        return
    if context.has("distributed_optimizer"):
        yield Variant(fields={"sharding": "distributed-optimizer"}, effort=0.3)


REMEDY = Remedy(
    name="distributed-optimizer",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "master"),
)
