"""Counts of vision towers and projectors, by the way their layers are put together (transformers 5.23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oomkb.dataclass import dataclass

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """What a kind of tower has; sizes are in the configuration."""

    gated: bool = False
    bias: bool = True
    """Biases of the MLP and of the output projection."""
    qkv_bias: bool = True
    norm: int = 2
    """Vectors per norm: LayerNorm 2, RMSNorm 1."""
    norms: int = 2
    scales: int = 0
    """Vectors that scale a residual branch."""
    qk_norm: bool = False
    patch_bias: bool = False
    class_token: bool = False
    positions: bool = True
    ends: int = 0
    """Vectors of the norms before and after all layers."""


_SIGLIP: Final = Tower(patch_bias=True, ends=2)
_CLIP: Final = Tower(class_token=True, ends=4)
_QWEN2: Final = Tower(positions=False)
_TOWERS: Final[Mapping[str, Tower]] = {
    "clip": _CLIP,
    "deepseek_vl": _SIGLIP,
    "gemma4": Tower(gated=True, bias=False, qkv_bias=False, norm=1, norms=4, qk_norm=True),
    "glm4v": Tower(gated=True, bias=False, qkv_bias=False, norm=1, patch_bias=True, ends=2),
    "idefics": _SIGLIP,
    "intern": Tower(scales=2, patch_bias=True, class_token=True),
    "llama4": Tower(class_token=True, ends=4),
    "mllama": Tower(qkv_bias=False, class_token=True, ends=4),
    "pixtral": Tower(gated=True, bias=False, qkv_bias=False, norm=1, positions=False, ends=1),
    "qwen": Tower(ends=2),
    "qwen2_5": Tower(gated=True, norm=1, positions=False),
    "qwen2": _QWEN2,
    "qwen3": Tower(patch_bias=True),
    "siglip": _SIGLIP,
    "smolvlm": _SIGLIP,
}
_JOINED: Final = (
    "gemma", "glm4", "idefics", "internvl", "lfm2", "lighton", "llama4", "llava", "minicpmv", "mistral3", "mllama",
    "paligemma", "phi3_v", "qwen", "shieldgemma", "smolvlm",
)  # fmt: skip
GLM_TOWERS: Final = ("glm4v", "glm46v", "glmga", "glm4v_moe")


def tower_of(kind: str, raw: Config) -> Tower:
    """The kind of tower by its own ``model_type``, else by the whole model's."""
    own = str(raw.get("model_type") or "").lower()
    for name in (own, kind):
        found = next((t for key, t in sorted(_TOWERS.items(), reverse=True) if name.startswith(key)), None)
        if found is not None:
            return found
    return _TOWERS["glm4v"] if kind in GLM_TOWERS else _SIGLIP


def tower_known(kind: str, raw: Config) -> bool:
    """Whether the tower and what joins it to the decoder are read from a known layout."""
    own = str(raw.get("model_type") or "").lower()
    named = any(name.startswith(key) for name in (own, kind) for key in _TOWERS)
    return named and kind.startswith(_JOINED)


def tower_layer(tower: Tower, raw: Config, hidden: int, ffn: int, heads: int) -> int:
    """Parameters of one layer."""
    wide = int(raw.get("head_dim") or 0) * heads or hidden
    qkv_bias = raw.get("qkv_bias", raw.get("attention_bias", tower.qkv_bias) if tower.scales else tower.qkv_bias)
    normed = bool(raw.get("qk_normalization") or raw.get("use_qk_norm"))
    norm = 1 if normed and tower.scales else tower.norm  # InternViT-6B has RMSNorm throughout
    out_bias = hidden if tower.bias and (tower.qkv_bias or tower.scales) else 0
    attention = 4 * hidden * wide + (3 * wide if qkv_bias else 0) + out_bias
    mlp = (3 if tower.gated else 2) * hidden * ffn
    if tower.bias:
        mlp += (2 if tower.gated else 1) * ffn + hidden
    extra = 2 * (wide // heads) if tower.qk_norm else 2 * hidden if normed else 0
    return attention + mlp + (norm * tower.norms + tower.scales) * hidden + extra


def tower_rest(kind: str, tower: Tower, raw: Config, hidden: int, ffn: int, sizes: tuple[int, int, int]) -> int:
    """Patch embedding, positions, class token, outer norms and what single towers add.

    :param sizes: pixels of a patch's side and of an image's side, frames in a patch.
    """
    patch, image, frames = sizes
    channels = first_of(raw.get("in_channels") or raw.get("in_chans") or raw.get("num_channels"), 3)
    cells = int(raw.get("num_position_embeddings") or raw.get("num_patches") or (image // patch) ** 2)
    if kind.startswith("qwen3") and not raw.get("num_position_embeddings"):
        cells = 2304
    if kind == "qwen":
        cells = 256  # interpolated to the image's
    total = channels * frames * patch * patch * hidden + (hidden if tower.patch_bias else 0) + tower.ends * hidden
    if tower.class_token:
        cells, total = cells + 1, total + hidden
    if kind.startswith("gemma4"):
        cells = 2 * int(raw.get("position_embedding_size") or 10240)
    total += cells * hidden if tower.positions else 0
    if raw.get("vision_use_head"):  # SigLIP's attention pooling
        total += hidden + 4 * hidden * hidden + 4 * hidden + 2 * hidden + 2 * hidden * ffn + ffn + hidden
    if kind == "mllama":
        total += _tiles(raw, hidden, cells)
    if kind == "llama4":
        joined, wide = int(raw.get("projector_input_dim") or 4096), int(raw.get("projector_output_dim") or 4096)
        total += ffn * joined + joined * wide
    return total


def _tiles(raw: Config, hidden: int, cells: int) -> int:
    """Mllama: gated embeddings by aspect ratio before, at and after the positions, and gates of the global layers."""
    tiles = int(raw.get("max_num_tiles") or 4)
    ratios = len(raw.get("supported_aspect_ratios") or ()) or sum(tiles // side for side in range(1, tiles + 1))
    return (ratios + 1) * tiles * hidden * (cells + 2) + 3 + 2 * int(raw.get("num_global_layers") or 8)


def first_of(value: Any, default: int) -> int:
    """A number, or the first of a list of them; ``default`` for none."""
    if isinstance(value, list | tuple):
        value = value[0] if value else default
    return int(value or default)


def projector_params(config: Config, kind: str, raw: Config, hidden: int, decoder: int, merge: int) -> int:
    """What stands between tower and decoder."""
    wide = hidden * merge * merge
    both = hidden * decoder + decoder * decoder
    if kind == "qwen":  # Qwen-VL: attention from learned queries, with fixed positions, then a projection
        out = int(raw.get("output_dim") or decoder)
        return 2 * 256 * out + hidden * out + 5 * out * out + 10 * out
    if kind == "phi3_v":  # four patches joined, two layers, separators between lines and between crops
        return 4 * hidden * decoder + decoder * decoder + 2 * decoder + 8 * hidden
    if kind in GLM_TOWERS:
        out, ffn = int(raw.get("out_hidden_size") or decoder), int(raw.get("intermediate_size") or 0)
        return wide * out + out + out * out + 2 * out + 3 * out * ffn
    if kind.startswith("qwen"):
        out = int(raw.get("out_hidden_size") or decoder)
        one = wide * wide + wide + wide * out + out
        deep = len(raw.get("deepstack_visual_indexes") or ()) if kind.startswith(("qwen3_vl", "qwen3_omni")) else 0
        return one + (hidden if kind.startswith("qwen2_5") else 2 * hidden) + deep * (one + 2 * wide)
    if kind in ("gemma3", "gemma4", "gemma4_unified"):
        own = hidden if kind == "gemma3" or not raw.get("standardize") else 0
        return hidden * decoder + (own if kind == "gemma3" else 0)
    if kind.startswith("internvl"):
        wide = hidden * 4
        return 2 * wide + wide * decoder + decoder + decoder * decoder + decoder
    if kind in ("mistral3", "lighton_ocr"):
        bias = 2 * decoder if config.get("multimodal_projector_bias") else 0
        return hidden + wide * hidden + both + bias
    if kind in ("idefics3", "smolvlm"):
        scale = int(config.get("scale_factor") or 2)
        return hidden * scale * scale * decoder
    if kind == "idefics2":
        return _perceiver(config, hidden, decoder)
    if kind == "mllama":
        width = int(raw.get("vision_output_dim") or 7680)
        return width * decoder + decoder
    if kind == "llama4":
        return int(raw.get("vision_output_dim") or raw.get("projector_output_dim") or 4096) * decoder
    if kind == "lfm2_vl":
        joined = hidden * int(config.get("downsample_factor") or 2) ** 2
        inner = int(config.get("projector_hidden_size") or decoder)
        return 2 * joined + joined * inner + inner + inner * decoder + decoder
    if kind == "minicpmv":
        queries = int(config.get("query_num") or 64)
        return queries * decoder + hidden * decoder + 5 * decoder * decoder + 10 * decoder
    if kind.startswith("paligemma"):
        return hidden * decoder + decoder
    return both + 2 * decoder if kind.startswith("llava") or kind == "vipllava" else both


def _perceiver(config: Config, hidden: int, decoder: int) -> int:
    """Idefics2: a gated MLP into the decoder's width, then layers of cross-attention from learned latents."""
    own, text = config.get("perceiver_config") or {}, config.get("text_config") or {}
    ffn = int(text.get("intermediate_size") or 4 * decoder)
    heads, width = int(own.get("resampler_n_heads") or 16), int(own.get("resampler_head_dim") or 96)
    kv = int(own.get("num_key_value_heads") or 4)
    layer = 2 * decoder * width * (heads + kv) + 12 * decoder * decoder + 3 * decoder
    mlp = 2 * hidden * ffn + ffn * decoder
    latents = int(own.get("resampler_n_latents") or 64) * decoder
    return mlp + latents + int(own.get("resampler_depth") or 3) * layer + decoder
