"""Hybrid sharding: split inside a machine, replicate between machines. More memory than full sharding, far less traffic
over a slow network; from plain replication it is a saving.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import model_parallel
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    several = (job.nodes or 1) > 1 and (job.gpus or 1) > 1
    if not several or model_parallel(job) > 1 or job.sharding not in (None, "none", "ddp"):
        return
    if job.quant in (None, "none") and job.optimizer in (None, "adamw", "sgd") and context.has("fsdp"):
        yield Variant(fields={"sharding": "hsdp"}, effort=1.4)


REMEDY = Remedy(
    name="hsdp",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "gradients", "master", "weights"),
)
