"""A paged optimizer: its 32-bit states live in unified memory and move to the host when the GPU is short."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._hardware import has_cuda
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    nvidia = has_cuda(context.device)
    plain = job.optimizer == "adamw" and not job.offload and job.sharding in (None, "none", "ddp")
    if plain and nvidia and context.has("paged_adamw"):
        yield Variant(fields={"optimizer": "paged_adamw"}, effort=0.6)


REMEDY = Remedy(
    name="optimizer-paged",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states",),
)
