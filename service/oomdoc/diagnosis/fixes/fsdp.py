"""Fully sharded data parallel: weights, gradients and optimizer states split, one layer gathered at a time.

Zhao et al. 2023, "PyTorch FSDP". Needs several ranks; bitsandbytes bases only with a matching storage dtype, so not
proposed there.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import model_parallel, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if world_size(job) // model_parallel(job) < 2 or not context.has("fsdp"):
        return
    if job.quant not in (None, "none") or job.method == "qlora" or job.offload:
        return
    if job.optimizer not in (None, "adamw", "sgd", "sgd_momentum", "lion"):
        return
    if job.sharding in (None, "none", "ddp", "data-parallel", "shard-grad-op", "hsdp"):
        kind = "fsdp2" if context.has("fsdp2") else "fsdp"
        yield Variant(fields={"sharding": kind}, effort=1.3)
    elif job.sharding in ("fsdp", "fsdp2") and job.reshard_after_forward is False:
        yield Variant(fields={"reshard_after_forward": True}, effort=0.4)


REMEDY = Remedy(
    name="fsdp",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "gradients", "master", "weights", "gathered weights"),
)
