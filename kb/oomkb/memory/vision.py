"""The vision tower of a vision-language model: its parameters, and the tokens an image or a video becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.memory.families import vision_towers as towers

_KEYS: Final = ("vision_config", "visual", "vision_tower_config", "vit_config")
_QWEN: Final = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "glm4v",
    "qwen2_5_omni",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen2_5_omni_thinker",
    "qwen3_omni_moe",
    "qwen3_omni_moe_thinker",
    "glm46v",
    "glmga",
    "glm4v_moe",
)
_HEADS: Final = ("num_heads", "num_attention_heads", "attention_heads", "heads")
_KINDS: Final = {"shieldgemma2": "gemma3", "paligemma2": "paligemma", "glm46v": "glm4v", "glmga": "glm4v"}


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
    unused: int
    """Layers at the end whose output nobody reads (LLaVA takes the last but one's)."""
    tokens_per_image: int | None
    """Fixed number of tokens per image; ``None`` where it follows from the pixels."""
    layer_params: int
    """Parameters of one layer of the tower."""
    projector_params: int
    other_params: int
    most_tiles: int = 0
    """Largest number of tiles of one image; 0 where an image is resized to one."""
    projector_out: int = 0
    """Width of what the projector hands to the decoder."""
    known: bool = True
    """Whether the layout of tower and projector was recognised; otherwise it is read as SigLIP's."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], decoder_hidden: int) -> VisionShape | None:
        """The tower of a multimodal ``config.json``; ``None`` for a text model."""
        raw = next((config[k] for k in _KEYS if isinstance(config.get(k), Mapping)), None)
        if raw is None:
            return _own_code(config)
        kind = _KINDS.get(str(config.get("model_type") or "").lower(), str(config.get("model_type") or "").lower())
        own = raw.get("embed_dim") if kind == "qwen2_vl" else None
        hidden = towers.first_of(own or raw.get("hidden_size") or raw.get("width"), 1152)
        depth = towers.first_of(raw.get("depth") or raw.get("num_hidden_layers") or raw.get("layers"), 24)
        patch = towers.first_of(raw.get("patch_size"), 14)
        size = towers.first_of(raw.get("image_size"), 448 if kind in _QWEN else 336)
        ratio = float(raw.get("mlp_ratio") or 4)
        ffn = towers.first_of(raw.get("intermediate_size") or int(hidden * ratio), 4 * hidden)
        usual = 2 if kind in _QWEN or kind.startswith("internvl") else 1
        merge = int(raw.get("spatial_merge_size") or config.get("spatial_merge_size") or usual)
        tower = towers.tower_of(kind, raw)
        heads = next((raw[k] for k in _HEADS if isinstance(raw.get(k), int)), max(1, hidden // 64))
        temporal = int(raw.get("temporal_patch_size") or (2 if kind in _QWEN else 1))
        if kind in towers.GLM_TOWERS:
            ffn = int(raw.get("out_hidden_size") or ffn)
        if kind == "mllama":
            depth += int(raw.get("num_global_layers") or 8)
        fixed = None if kind in _QWEN or kind == "mistral3" else _fixed_tokens(config, kind, size, patch, merge)
        return cls(
            kind=kind,
            hidden=hidden,
            depth=depth,
            heads=heads,
            ffn=ffn,
            gated=tower.gated,
            patch=patch,
            merge=merge,
            image_size=size,
            temporal=temporal,
            unused=_unused(config, kind),
            tokens_per_image=fixed,
            projector_out=towers.first_of(raw.get("out_hidden_size"), decoder_hidden),
            most_tiles=_most_tiles(config, kind),
            known=towers.tower_known(kind, raw),
            layer_params=towers.tower_layer(tower, raw, hidden, ffn, heads),
            projector_params=towers.projector_params(config, kind, raw, hidden, decoder_hidden, merge),
            other_params=towers.tower_rest(kind, tower, raw, hidden, ffn, (patch, size, temporal)),
        )

    @property
    def params(self) -> int:
        """Tower and projector."""
        return self.depth * self.layer_params + self.projector_params + self.other_params

    def lora_params(self, rank: int) -> int:
        """Adapters on every linear of the tower."""
        h, f = self.hidden, self.ffn
        wide = h * self.merge**2 if self.kind in _QWEN else 0
        joined = rank * (2 * wide + wide + self.projector_out) if wide else 0
        qkv = 4 * h if self.kind in _QWEN or self.kind == "internvl_chat" else 6 * h  # one matrix or three
        return joined + self.depth * rank * (qkv + 2 * h + (3 if self.gated else 2) * (h + f))

    def patches(self, pixels: int, frames: int = 1) -> int:
        """Patches that ``pixels`` (and, for video, ``frames``) become inside the tower."""
        if self.tokens_per_image is not None:
            return max(1, (self.image_size // self.patch) ** 2) * frames * (self.tiles(pixels) if frames == 1 else 1)
        cell = self.patch * self.merge
        merged = max(1, pixels // (cell * cell))
        return merged * self.merge**2 * math.ceil(frames / self.temporal if frames > 1 else 1)

    def tiles(self, pixels: int) -> int:
        """Pieces of ``image_size`` squared that an image is cut into, with the thumbnail that goes along.

        InternVL (``dynamic_preprocess``): up to ``max_dynamic_patch`` tiles, and the thumbnail where there are several.
        LLaVA-NeXT's grids reach 672 x 672 or 336 x 1008: four tiles and the whole image.
        """
        if not self.most_tiles:
            return 1
        tiles = min(self.most_tiles, max(1, round(pixels / self.image_size**2)))
        return tiles + 1 if tiles > 1 or self.kind.startswith("llava_next") else 1

    def tokens(self, pixels: int, frames: int = 1) -> int:
        """Tokens of the decoder for one image of ``pixels``, or a video of ``frames`` of them."""
        if self.tokens_per_image is not None:
            return self.tokens_per_image * frames * (self.tiles(pixels) if frames == 1 else 1)
        return max(1, self.patches(pixels, frames) // self.merge**2)


def _own_code(config: Mapping[str, Any]) -> VisionShape | None:
    """Phi-3-vision, whose configuration names CLIP ViT-L/14 at 336 pixels without its sizes."""
    layer = config.get("embd_layer")
    if not isinstance(layer, Mapping) or layer.get("embedding_cls") != "image":
        return None
    tower = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "image_size": 336}
    full = {**tower, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14}
    tokens = int(layer.get("num_img_tokens") or 144)
    outer = {"model_type": "phi3_v", "vision_config": full, "image_seq_length": tokens}
    return VisionShape.from_config(outer, int(config.get("hidden_size") or 3072))


def _unused(config: Mapping[str, Any], kind: str) -> int:
    chosen = config.get("vision_feature_layer", -2 if kind in ("llava", "llava_next") else -1)
    return -1 - chosen if isinstance(chosen, int) and chosen < 0 else 0


def _most_tiles(config: Mapping[str, Any], kind: str) -> int:
    if kind.startswith("internvl"):
        return int(config.get("max_dynamic_patch") or 12)
    return 4 if kind in ("llava_next", "llava_onevision") else 0


def _fixed_tokens(config: Mapping[str, Any], kind: str, size: int, patch: int, merge: int) -> int:
    for key in ("mm_tokens_per_image", "image_seq_length", "num_image_token"):
        if config.get(key):
            return int(config[key])
    side = size // patch
    if kind.startswith("internvl"):
        ratio = float(config.get("downsample_ratio") or 0.5)
        return int(side * side * ratio * ratio)
    return max(1, (side // merge) ** 2)
