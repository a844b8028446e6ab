"""More GPUs of the same kind, with the sharding that makes use of them: replication alone frees nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import is_serving, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_SHARDED: Final = ("zero2", "zero3", "fsdp", "fsdp2", "distributed-optimizer")
_MACHINE: Final = 8
_FACTORS: Final = (2, 4, 8)


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if is_serving(job) or context.framework == "unsloth":
        return
    world, in_machine, nodes = world_size(job), job.gpus or world_size(job), job.nodes or 1
    for rank, factor in enumerate(_FACTORS):
        total = world * factor
        if total > 512:
            break
        gpus = in_machine * factor if in_machine * factor <= _MACHINE and nodes == 1 else in_machine
        fields: dict[str, object] = {"world": total, "dp": None, "gpus": gpus, "nodes": max(1, total // gpus)}
        if job.sharding not in _SHARDED:
            if not context.has("zero") or job.quant not in (None, "none") or job.optimizer not in (None, "adamw"):
                continue
            fields["sharding"] = "zero3"
        gpu = job.gpu or "GPU"
        note = say("fixes.more-gpus.how", count=total, before=world, gpu=gpu)
        if "sharding" in fields:
            note = say("fixes.more-gpus.sharded.how", count=total, before=world, gpu=gpu, sharding="ZeRO-3")
        yield Variant(fields=fields, effort=6.0 + 2.0 * rank, notes=(note,))


REMEDY = Remedy(
    name="more-gpus",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "gradients", "master", "weights"),
    hardware=True,
)
