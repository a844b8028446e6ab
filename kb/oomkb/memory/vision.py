"""The vision tower of a vision-language model: its parameters, and the tokens an image or a video becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["VisionShape"]

_KEYS: Final = ("vision_config", "visual", "vision_tower_config", "vit_config")
_QWEN: Final = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "qwen2_5_omni", "qwen3_5", "qwen3_5_moe")


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionShape:
    """A ViT with its projector."""

    kind: str
    hidden: int
    depth: int
    heads: int
    ffn: int
    gated: bool
    patch: int
    merge: int
    """Patches per side that are merged into one token of the decoder."""
    image_size: int
    temporal: int
    tokens_per_image: int | None
    """Fixed number of tokens per image; ``None`` where it follows from the pixels."""
    projector_params: int
    other_params: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any], decoder_hidden: int) -> VisionShape | None:
        """The tower of a multimodal ``config.json``; ``None`` for a text model."""
        raw = next((config[k] for k in _KEYS if isinstance(config.get(k), Mapping)), None)
        if raw is None:
            return None
        kind = str(config.get("model_type") or "").lower()
        hidden = int(
            raw.get("embed_dim") if kind == "qwen2_vl" and raw.get("embed_dim") else raw.get("hidden_size") or 1152
        )
        depth = int(raw.get("depth") or raw.get("num_hidden_layers") or 24)
        patch = _first(raw.get("patch_size"), 14)
        size = _first(raw.get("image_size"), 448 if kind in _QWEN else 336)
        ffn = int(raw.get("intermediate_size") or hidden * float(raw.get("mlp_ratio") or 4))
        merge = int(raw.get("spatial_merge_size") or (2 if kind in _QWEN or kind.startswith("internvl") else 1))
        gated = kind in {"qwen2_5_vl", "glm4v"} or "pixtral" in str(raw.get("model_type") or "")
        fixed = None if kind in _QWEN or kind == "mistral3" else _fixed_tokens(config, kind, size, patch, merge)
        projector = _projector(config, kind, hidden, decoder_hidden, merge, raw)
        return cls(
            kind=kind,
            hidden=hidden,
            depth=depth,
            heads=int(raw.get("num_heads") or raw.get("num_attention_heads") or max(1, hidden // 64)),
            ffn=ffn,
            gated=gated,
            patch=patch,
            merge=merge,
            image_size=size,
            temporal=int(raw.get("temporal_patch_size") or (2 if kind in _QWEN else 1)),
            tokens_per_image=fixed,
            projector_params=projector,
            other_params=_embeddings(raw, kind, hidden, patch, size),
        )

    @property
    def layer_params(self) -> int:
        """Parameters of one layer of the tower."""
        h, f = self.hidden, self.ffn
        attention = 4 * h * h + 4 * h
        mlp = (3 * h * f + 2 * f + h) if self.gated else (2 * h * f + f + h)
        norms = 2 * h if self.gated else 4 * h
        return attention + mlp + norms

    @property
    def params(self) -> int:
        """Tower and projector."""
        return self.depth * self.layer_params + self.projector_params + self.other_params

    def lora_params(self, rank: int) -> int:
        """Adapters on every linear of the tower."""
        h, f = self.hidden, self.ffn
        return self.depth * rank * ((h + 3 * h) + 2 * h + (3 if self.gated else 2) * (h + f))

    def patches(self, pixels: int, frames: int = 1) -> int:
        """Patches that ``pixels`` (and, for video, ``frames``) become inside the tower."""
        if self.tokens_per_image is not None:
            return max(1, (self.image_size // self.patch) ** 2) * frames
        cell = self.patch * self.merge
        merged = max(1, pixels // (cell * cell))
        return merged * self.merge**2 * math.ceil(frames / self.temporal if frames > 1 else 1)

    def tokens(self, pixels: int, frames: int = 1) -> int:
        """Tokens of the decoder for one image of ``pixels``, or a video of ``frames`` of them."""
        if self.tokens_per_image is not None:
            return self.tokens_per_image * frames
        return max(1, self.patches(pixels, frames) // self.merge**2)


def _first(value: Any, default: int) -> int:
    if isinstance(value, list | tuple):
        value = value[0] if value else default
    return int(value or default)


def _fixed_tokens(config: Mapping[str, Any], kind: str, size: int, patch: int, merge: int) -> int:
    for key in ("mm_tokens_per_image", "image_seq_length", "num_image_token"):
        if config.get(key):
            return int(config[key])
    side = size // patch
    if kind.startswith("internvl"):
        ratio = float(config.get("downsample_ratio") or 0.5)
        return int(side * side * ratio * ratio)
    return max(1, (side // merge) ** 2)


def _projector(
    config: Mapping[str, Any], kind: str, hidden: int, decoder: int, merge: int, raw: Mapping[str, Any]
) -> int:
    if kind in _QWEN:
        wide = hidden * merge * merge
        one = wide * wide + wide + wide * decoder + decoder
        deep = len(raw.get("deepstack_visual_indexes") or ())
        return one + 2 * hidden + deep * (one + 2 * wide)
    if kind == "gemma3":
        return hidden * decoder + hidden
    if kind.startswith("internvl"):
        wide = hidden * 4
        return 2 * wide + wide * decoder + decoder + decoder * decoder + decoder
    if kind.startswith("llava"):
        return hidden * decoder + decoder * decoder + 2 * decoder
    return hidden * decoder + decoder * decoder


def _embeddings(raw: Mapping[str, Any], kind: str, hidden: int, patch: int, size: int) -> int:
    channels = _first(raw.get("in_channels") or raw.get("in_chans") or raw.get("num_channels"), 3)
    temporal = int(raw.get("temporal_patch_size") or (2 if kind in _QWEN else 1))
    patches = channels * temporal * patch * patch * hidden
    if kind in ("qwen2_vl", "qwen2_5_vl"):
        return patches
    positions = int(raw.get("num_position_embeddings") or (size // patch) ** 2) * hidden
    return patches + positions + 3 * hidden
