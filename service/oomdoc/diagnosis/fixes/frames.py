"""Fewer video frames: each is an image's worth of tokens."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.video_frames
    if now is None or not context.has("vision"):
        return
    for step, fewer in enumerate((now // 2, now // 4), start=1):
        if fewer >= 2:
            yield Variant(fields={"video_frames": fewer}, effort=0.8 * step)


REMEDY = Remedy(
    name="frames",
    safety="changed-training",
    kinds=frozenset({"vision"}),
    variants=_variants,
    reduces=("vision", "logits", "activations", "attention", "recomputed"),
)
