"""Sequence parallelism: one sample's tokens split over several GPUs.

Ulysses style (ms-swift, verl): each GPU of a group holds a part of the sequence and all heads change hands for
attention; the size must divide the key-value heads. Jacobs et al. 2023. Megatron style: norms and dropouts split
inside the tensor-parallel group.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import model_parallel, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now, world = job.sp or 1, world_size(job)
    if context.has("sp.megatron"):
        if (job.tp or 1) > 1 and now == 1:
            yield Variant(fields={"sp": job.tp}, effort=0.3)
        return
    if not context.has("sp") or job.attention == "eager":
        return
    kv_heads = context.shape.dims.kv_heads if context.shape is not None else None
    size = now * 2
    while size <= min(8, world):
        if world % (size * model_parallel(job)) == 0 and (not kv_heads or kv_heads % size == 0):
            yield Variant(fields={"sp": size}, effort=0.8)
        size *= 2


REMEDY = Remedy(
    name="sequence-parallel",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("logits", "activations", "attention", "recomputed"),
)
