"""A limit on the size of images where none is set: by default a single photo may become thousands of tokens.

Qwen2-VL and Qwen2.5-VL take up to 12,845,056 pixels, 16,384 tokens of 28 x 28 (``preprocessor_config.json``); 401,408
pixels are 512 tokens. Where a limit is set, :mod:`~oomdoc.diagnosis.fixes.pixels` lowers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_PROCESSOR: Final = "processor = AutoProcessor.from_pretrained(model_id, max_pixels=401408)  # 512 tokens an image"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "vision-tokens" not in context.causes[:2]:
        return
    limited = line_of(context.framework, "image-limit")
    if job.max_pixels is None and limited is not None:
        yield Variant(instruction=say("fixes.image-size.limited", line=limited), effort=0.5)
    elif job.max_pixels is None:
        line = line_of(context.framework, "image-size") or _PROCESSOR
        yield Variant(instruction=say("fixes.image-size.how", line=line), effort=0.5)
    video = line_of(context.framework, "video-size")
    if job.video_frames and video is not None:
        yield Variant(instruction=say("fixes.image-size.video", line=video), effort=0.6)


REMEDY = Remedy(
    name="image-size",
    safety="changed-training",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"vision-tokens"}),
    advice=True,
)
