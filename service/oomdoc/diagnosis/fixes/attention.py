"""A fused attention kernel: no sequence x sequence scores are ever stored.

FlashAttention-2 needs compute capability 8.0 (Ampere) and 16-bit activations; PyTorch's SDPA picks a memory-
efficient kernel on older cards. Dao 2023, "FlashAttention-2".
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _half(job: Job) -> bool:
    return job.autocast in ("bf16", "fp16") or job.param_dtype in ("bf16", "fp16")


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if not context.has("attention") or (context.serving and not context.script):
        return
    # A script that fails in its scores has them, whatever is not said of them.
    scores = context.script and job.attention is None and context.causes[:1] == ("attention-scores",)
    if job.attention == "eager" or scores:
        yield Variant(fields={"attention": "sdpa"}, effort=0.3)
    # Only where the card is known: an old card refuses to start with it.
    if job.attention in ("eager", "sdpa") and context.device and context.can("flash2") and _half(job):
        yield Variant(fields={"attention": "flash2"}, effort=0.8)


REMEDY = Remedy(
    name="attention",
    safety="same-numbers",
    kinds=frozenset({"training", "serving"}),
    variants=_variants,
    reduces=("attention", "mask", "activations", "recomputed"),
)
