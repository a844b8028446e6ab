"""Smaller images: fewer vision tokens in the sequence, fewer patches in the tower."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_MIN_PIXELS = 128 * 128


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.max_pixels
    if now is None or not context.has("vision"):
        return
    for step, divisor in enumerate((2, 4, 8), start=1):
        if now // divisor >= _MIN_PIXELS:
            yield Variant(fields={"max_pixels": now // divisor}, effort=0.8 * step)


REMEDY = Remedy(
    name="pixels",
    safety="changed-training",
    kinds=frozenset({"vision"}),
    variants=_variants,
    reduces=("vision", "logits", "activations", "attention", "recomputed"),
)
