"""What images and videos cost in training: tokens of the decoder, and the activations of the tower that sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape
from oomkb.memory.vision import VisionShape

if TYPE_CHECKING:
    from oomkb.memory.setting import Setting

__all__ = ["NO_IMAGES", "USUAL_PIXELS", "Images", "Seen", "counted", "images_of", "seen"]

USUAL_PIXELS: Final = 1280 * 28 * 28
"""Where no limit is stated: what Qwen2-VL's and Qwen2.5-VL's cards advise; the processors' own is ten times that."""
_LIMITS_ALL: Final = ("llama-factory", "llamafactory", "ms-swift", "swift", "axolotl")
"""Their length limit counts image tokens as well (``cutoff_len``, ``max_length``, ``sequence_len``)."""
_FREEZE: Final = ("llama-factory", "llamafactory", "ms-swift", "swift")
"""Freeze the tower unless told otherwise (``freeze_vision_tower``, ``freeze_vit``)."""
_KINDS: Final[Mapping[str, str]] = {
    "qwen2_vl": "vit-qwen2",
    "qwen2_5_vl": "vit-qwen2.5",
    "qwen2_5_omni": "vit-qwen2.5",
    "qwen2_5_omni_thinker": "vit-qwen2.5",
    "qwen3_vl": "vit-qwen3",
    "qwen3_vl_moe": "vit-qwen3",
    "qwen3_5": "vit-qwen3",
    "qwen3_5_moe": "vit-qwen3",
    "llava": "vit-clip",
    "llava_next": "vit-clip",
    "internvl_chat": "vit-intern",
    "internvl": "vit-intern",
}
"""The tower's layers by the whole model's type (:mod:`oomkb.memory.families.decoders`); others are SigLIP's."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Bytes on one GPU for one micro-batch."""

    pixels: float = 0.0
    """The images themselves, to the step's end."""
    kept: float = 0.0
    """What the tower saves for its backward pass, while the decoder runs."""
    forward: float = 0.0
    """The tower's own peak before the decoder runs."""
    backward: float = 0.0
    """The same after the decoder's backward pass."""


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


def counted(job: Job) -> bool:
    """Whether the stated length includes the tokens of images."""
    return any(word in (job.framework or "").lower() for word in _LIMITS_ALL)


def _frozen(job: Job) -> bool:
    for name in ("freeze_vision_tower", "freeze_vit", "freeze_vision"):
        if isinstance(job.extra.get(name), bool):
            return bool(job.extra[name])
    return any(word in (job.framework or "").lower() for word in _FREEZE)


def seen(s: Setting, shape: ModelShape) -> Seen:
    """The tower's share of a step, its layers played on the same tape as the decoder's."""
    images, vision = s.images, shape.vision
    if vision is None or not images.patches:
        return _NOTHING
    from oomkb.memory.activations import step_of  # which reads settings, and settings images

    tower = _tower(_KINDS.get(vision.kind, "vit-siglip"), vision)
    adapters = s.adapters and not images.frozen
    own = replace(
        s,
        adapters=adapters or images.frozen,
        targets=s.targets if adapters else (),
        objective="sft",
        fused_ce=True,
        masked=False,
        quant="none",
        quant_keeps=False,
        expert_adapters="none",
        tp=1,
        pp=1,
        ep=1,
        logits_share=1.0,
        sequence_parallel=False,
    )
    step = step_of(own, tower)
    patches = float(s.batch * images.patches)
    square = patches * images.longest
    joined = patches * vision.hidden * s.compute_bytes * _MERGER
    forward = step.peak("forward", patches, square)[0]
    pixels = 4.0 * s.batch * images.pixels  # processors make fp32
    if images.frozen:
        return Seen(pixels=pixels, forward=forward)
    c, t, q = step.saved
    kept = c + t * patches + q * square + joined
    back = step.peak("backward", patches, square)[0]
    return Seen(pixels=pixels, kept=kept, forward=forward + joined, backward=back)


_NOTHING: Final = Seen()
_MERGER: Final = 4
"""What norm, two products and an activation between tower and decoder keep, in tensors of the patches' size."""


@lru_cache(maxsize=64)
def _tower(kind: str, vision: VisionShape) -> ModelShape:
    return ModelShape.from_config(
        {
            "model_type": kind,
            "vocab_size": 1,
            "hidden_size": vision.hidden,
            "num_hidden_layers": max(1, vision.depth - vision.unused),
            "num_attention_heads": vision.heads,
            "intermediate_size": vision.ffn,
            "tie_word_embeddings": True,
        }
    )
