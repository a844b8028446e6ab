"""Optimizer states in host memory, updated there: frees 12 bytes a parameter, costs a slow step and host memory.

Needs room on the host: 16 bytes a trainable parameter over all ranks of the machine. Ren et al. 2021, "ZeRO-Offload".
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    offload = job.offload or ()
    if "optimizer" in offload or job.optimizer not in (None, "adamw"):
        return
    zero = job.sharding in ("zero1", "zero2", "zero3") and (
        context.has("zero.offload") or context.has("zero.offload_optimizer")
    )
    # FSDP moves parameters, gradients and the optimizer together; Megatron has a switch of its own.
    fsdp = job.sharding in ("fsdp", "fsdp2", "hsdp") and context.has("fsdp.offload_optimizer")
    own = context.has("megatron.offload_optimizer") and job.sharding == "distributed-optimizer"
    if job.sharding == "zero3" and context.has("zero3.offload_both"):
        return  # its configuration of stage 3 offloads parameters as well: see offload_param
    if zero or fsdp or own:
        yield Variant(fields={"offload": [*offload, "optimizer"]}, effort=1.0)


REMEDY = Remedy(
    name="offload-optimizer",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "master"),
)
