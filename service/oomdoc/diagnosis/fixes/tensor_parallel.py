"""Tensor parallelism: every matrix split over the GPUs of one machine. Shoeybi et al. 2019, "Megatron-LM".

The size must divide the attention heads (and key-value heads, unless they are replicated) and the GPUs of a machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import model_parallel, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY", "sizes"]


def sizes(job: Job, context: Context, now: int, available: int) -> Iterator[int]:
    """Larger tensor-parallel sizes that the model and ``available`` GPUs allow."""
    heads = context.shape.dims.heads if context.shape is not None else None
    kv_heads = context.shape.dims.kv_heads if context.shape is not None else None
    size = now * 2
    while size <= available and size <= 8:
        whole = heads is None or (heads % size == 0 and (not kv_heads or kv_heads % size == 0))
        if available % size == 0 and whole:
            yield size
        size *= 2


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.tp or 1
    if not context.has("tp") or ((job.sp or 1) > 1 and not context.has("sp.megatron")):
        return
    in_machine = job.gpus or world_size(job) // (job.nodes or 1)
    other = model_parallel(job) // now
    for size in sizes(job, context, now, in_machine):
        if world_size(job) % (size * other) == 0:
            yield Variant(fields={"tp": size}, effort=1.0)


REMEDY = Remedy(
    name="tensor-parallel",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("weights", "gradients", "optimizer states", "master", "logits", "activations", "recomputed"),
)
