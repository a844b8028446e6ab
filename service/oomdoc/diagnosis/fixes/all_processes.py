"""One process for every GPU: ZeRO, FSDP and data parallelism split over processes, and one process splits nothing.

``NPROC_PER_NODE=1`` or a plain ``python`` leaves the other GPUs of the machine idle.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY", "launch_line"]


def launch_line(framework: str | None, gpus: int) -> str:
    """How the framework is made to start ``gpus`` processes on a machine."""
    known = line_of(framework, "launch") or "torchrun --nproc_per_node {gpus} ..."
    return known.replace("{gpus}", str(gpus))


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    # GPUs of a colocated or separate rollout engine are not idle.
    machine = (job.gpus or 0) + context.spare_gpus
    world, nodes = world_size(job), job.nodes or 1
    if machine * nodes <= world or world >= 2 * machine * nodes or context.framework == "unsloth":
        return
    if job.objective == "inference" or job.get("rollout.colocated") is False:
        return
    line = launch_line(context.framework, machine)
    fields: dict[str, object] = {"world": machine * nodes, "gpus": machine, "dp": None}
    yield Variant(fields=fields, effort=0.5, notes=(say("fixes.all-processes.how", line=line),))
    # Processes alone replicate the model: with sharding they share it.
    for sharding in ("zero2", "zero3"):
        plain = job.sharding in (None, "none", "ddp") or (job.sharding in ("zero1", "zero2") and sharding == "zero3")
        if plain and context.has("zero") and job.quant in (None, "none") and job.optimizer in (None, "adamw"):
            yield Variant(
                fields={**fields, "sharding": sharding}, effort=1.2, notes=(say("fixes.all-processes.how", line=line),)
            )


REMEDY = Remedy(
    name="all-processes",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "gradients", "master", "weights"),
)
