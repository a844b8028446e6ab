"""A smaller LoRA rank: adapters, their gradients and optimizer states shrink in proportion (seldom much)."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import is_lora
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    rank = job.get("lora.r")
    if is_lora(job) and isinstance(rank, int) and rank > 16 and context.has("lora"):
        for smaller in dict.fromkeys((rank // 2, 16)):
            if 16 <= smaller < rank:
                yield Variant(fields={"lora.r": smaller}, effort=0.5)


REMEDY = Remedy(
    name="lora-rank",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("weights", "adapter", "gradients", "optimizer states", "activations"),
)
