"""The images and videos of a training sample: tokens of the decoder, patches in the tower."""

from __future__ import annotations

from typing import Final

from oomkb.dataclass import dataclass
from oomkb.errors import Note, note
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape

USUAL_PIXELS: Final = 1280 * 28 * 28
"""Where no limit is stated: what Qwen2-VL's and Qwen2.5-VL's cards advise; the processors' own is ten times that."""
_LIMITS_ALL: Final = ("llama-factory", "llamafactory", "ms-swift", "swift", "axolotl")
"""Their length limit counts image tokens as well (``cutoff_len``, ``max_length``, ``sequence_len``)."""
_FREEZE: Final = ("llama-factory", "llamafactory", "ms-swift", "swift")
"""Freeze the tower unless set otherwise (``freeze_vision_tower``, ``freeze_vit``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The images of one sample."""

    tokens: int = 0
    """Tokens of the decoder."""
    patches: int = 0
    """Patches in the tower."""
    longest: int = 0
    """Patches of one image or tile, which attend to each other."""
    pixels: int = 0
    """Numbers that describe the pixels: colours of every patch, in all its frames."""
    frozen: bool = False
    """The tower gets no gradients."""


NO_IMAGES: Final = Images()


def images_of(job: Job, shape: ModelShape) -> Images:
    """The images that the job states; none for a text model, or where neither number nor size is stated."""
    vision = shape.vision
    if vision is None:
        return NO_IMAGES
    if not (job.images or job.max_pixels or job.video_frames):
        return Images(frozen=_frozen(job))
    pixels, count, frames = job.max_pixels or USUAL_PIXELS, job.images or 1, job.video_frames or 1
    longest = vision.patches(pixels)
    patches = count * vision.patches(pixels, frames)
    return Images(
        tokens=count * vision.tokens(pixels, frames),
        patches=patches,
        pixels=3 * patches * vision.temporal * vision.patch**2,
        longest=longest if vision.tokens_per_image is None else longest // max(1, vision.tiles(pixels)),
        frozen=_frozen(job),
    )


def unstated_images(job: Job, shape: ModelShape) -> tuple[Note, ...]:
    """That a model which sees was priced without images, because none are stated."""
    if shape.vision is None or job.images or job.max_pixels or job.video_frames:
        return ()
    return (note("estimate.images-not-counted", tokens=shape.vision.tokens(USUAL_PIXELS)),)


def counted(job: Job) -> bool:
    """Whether the stated length includes the tokens of images."""
    return job.runs_on(*_LIMITS_ALL)


def _frozen(job: Job) -> bool:
    for name in ("freeze_vision_tower", "freeze_vit", "freeze_vision"):
        if isinstance(job.extra.get(name), bool):
            return bool(job.extra[name])
    return job.runs_on(*_FREEZE)
