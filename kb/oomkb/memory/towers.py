"""What the tower that sees images holds in training: its layers played on the same tape as the decoder's."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.activations import step_of
from oomkb.memory.families.family import TOWERS
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.vision import VisionShape


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerBytes:
    """Bytes on one GPU for one micro-batch."""

    pixels: float = 0.0
    """The images themselves, to the step's end."""
    kept: float = 0.0
    """What the tower saves for its backward pass, while the decoder runs."""
    forward: float = 0.0
    """The tower's own peak before the decoder runs."""
    backward: float = 0.0
    """The same after the decoder's backward pass."""


def tower_bytes(s: Setting, shape: ModelShape) -> TowerBytes:
    """The tower's share of a step, its layers played on the same tape as the decoder's."""
    images, vision = s.images, shape.vision
    if vision is None or not images.patches:
        return _NOTHING
    tower = _tower(TOWERS.get(vision.kind, "vit-siglip"), vision)
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
        return TowerBytes(pixels=pixels, forward=forward)
    c, t, q = step.saved
    kept = c + t * patches + q * square + joined
    back = step.peak("backward", patches, square)[0]
    return TowerBytes(pixels=pixels, kept=kept, forward=forward + joined, backward=back)


_NOTHING: Final = TowerBytes()
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
