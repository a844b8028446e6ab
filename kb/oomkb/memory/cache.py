"""The key/value cache: what one sequence of a given length keeps on one GPU.

Grouped heads are split over tensor parallelism until one is left per GPU; the latent of MLA is on every GPU
(arXiv 2405.04434, section 2.1.2); a windowed layer keeps its window and what one step computes ahead of it (vLLM 0.33
``v1/kv_cache_interface.py``, ``SlidingWindowSpec``); a recurrent layer keeps one state, however long the sequence is.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.families.matrix import LayerShape
from oomkb.memory.families.mixers import STATES
from oomkb.memory.setting import BYTES, Setting
from oomkb.memory.shape import ModelShape

_MAX_LENGTH: Final = 1 << 24
_BLOCKED: Final = {"q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32}
"""Bytes of an element in llama.cpp's blocks of 32 with their scales (``ggml-common.h``)."""


def element_bytes(s: Setting, kv_dtype: str | None) -> float:
    """Bytes of one element of the cache; ``auto`` is the model's dtype, at most 16 bits."""
    word = (kv_dtype or "auto").lower()
    if word in _BLOCKED:
        return _BLOCKED[word]
    if word.startswith(("fp8", "int8", "e4m3", "e5m2")):
        return 1.0
    if word.startswith(("nvfp4", "mxfp4", "fp4")):
        return 0.5 + 1 / 16  # one fp8 scale for 16 elements
    if word.startswith("int4"):
        return 0.5
    return BYTES.get(word, 2.0) if word != "auto" else min(4.0, float(s.param_bytes))


@dataclass(frozen=True, slots=True)
class Cache:
    """Bytes that one sequence keeps on one GPU, as a function of its length."""

    token: float
    """For every token."""
    windowed: tuple[tuple[float, float], ...]
    """(bytes a token, tokens at most) of layers that do not see everything."""
    fixed: float
    """States of recurrent mixers."""

    def bytes_at(self, tokens: float) -> float:
        """For a sequence of so many tokens."""
        kept = self.token * tokens + self.fixed
        for each, most in self.windowed:
            kept += each * min(tokens, most)
        return kept

    def part(self, share: float) -> Cache:
        """What a share of the layers keeps."""
        if share == 1.0:
            return self
        windowed = tuple((each * share, most) for each, most in self.windowed)
        return Cache(self.token * share, windowed, self.fixed * share)

    def longest(self, pool: float) -> int:
        """The longest sequence that ``pool`` bytes hold; the model's own limit does not count here."""
        return bisect_left(range(1, _MAX_LENGTH + 1), True, key=lambda tokens: self.bytes_at(tokens) > pool)


@dataclass(frozen=True, slots=True)
class Pages:
    """What vLLM's second engine shares pages of one size between: attention and recurrent layers, in equal groups."""

    blocks: int = 1
    """Blocks that a sequence holds in each group of recurrent layers: its state, and one for each speculated token."""
    heads: int = 0
    """Attention layers of a speculative head on the target, which count among its own."""


def cache_of(
    s: Setting,
    shape: ModelShape,
    kv_dtype: str | None,
    *,
    ahead: float = 0.0,
    pages: Pages | None = None,
    kept: float | None = None,
    spread: bool = False,
) -> Cache:
    """The cache of one sequence over the layers of its stage.

    :param ahead: tokens that one step computes at once, which a windowed layer holds beside its window.
    :param spread: one process lays whole layers on the cards and counts the output as one more (llama.cpp).
    :param kept: the share of all tokens that windowed layers have room for, where that does not follow their window.
    """
    d = shape.dims
    layers = shape.layer_count
    part = -(-(layers + 1) // s.pp) / layers if spread and s.pp > 1 else 1 / s.pp

    def each(layer: LayerShape) -> float:
        share = 1 if d.kv_lora_rank else min(s.attention_tp, layer.kv_heads)
        scales = 8.0 * layer.kv_heads / share if "per_token_head" in (kv_dtype or "") else 0.0  # of both, fp32
        return ((layer.kv_elements / share + d.index_dim) * element_bytes(s, kv_dtype) + scales) * part

    keeping = [layer for layer in shape.layers if layer.caches]
    token = sum(layer.count * each(layer) for layer in keeping if not layer.window)
    if kept is not None:
        token += kept * sum(layer.count * each(layer) for layer in keeping if layer.window)
        return Cache(token, (), _states(s, shape) * part)
    windowed = tuple((layer.count * each(layer), layer.window + ahead) for layer in keeping if layer.window)
    if pages is not None and token and not windowed:
        return _paged(s, shape, each(keeping[0]), pages) or Cache(token, windowed, _states(s, shape) * part)
    return Cache(token, windowed, _states(s, shape) * part)


def _paged(s: Setting, shape: ModelShape, per_layer: float, pages: Pages) -> Cache | None:
    """Blocks so long that a recurrent state fits a layer's page of one (vLLM ``v1/core/kv_cache_utils.py``).

    Layers of both kinds form groups of as many as the rarer kind has, which take blocks from one pool. Start-ups of
    Qwen3.6 27B with three speculated tokens log what five blocks to a group make (noonghunna/club-3090 446 and 642).
    """
    recurrent = sum(mixer.removeprefix("attention+") in STATES for mixer in shape.dims.mixers)
    full = sum(layer.count for layer in shape.layers if layer.caches) + pages.heads
    if not recurrent or per_layer <= 0:
        return None
    size = min(recurrent, full)
    if max(recurrent, full) < 1.25 * size:
        size = max(recurrent, full)
    block = 16 * math.ceil(_states(s, shape) / recurrent / (per_layer * s.pp) / 16)
    whole = size * math.ceil(full / size) - pages.heads  # the head's own layer is counted with the draft
    fixed = block * per_layer * size * math.ceil(recurrent / size) * pages.blocks
    return Cache(whole * per_layer, (), fixed)


def cache_bytes(s: Setting, shape: ModelShape, kv_dtype: str | None, tokens: float, *, ahead: float = 0.0) -> float:
    """What one sequence of ``tokens`` keeps on one GPU."""
    return cache_of(s, shape, kv_dtype, ahead=ahead).bytes_at(tokens)


def _states(s: Setting, shape: ModelShape) -> float:
    """States of recurrent mixers for one sequence."""
    d = shape.dims
    if not d.mixers:
        return 0.0
    total = 0.0
    for mixer in set(d.mixers):
        count = STATES.get(mixer.removeprefix("attention+"))
        total += d.mixers.count(mixer) * count(d.fields, d.hidden) if count else 0.0
    # The configurations of Qwen3.5 and 3.6 say float32, which shortened ones leave out; Qwen3-Next has none.
    wide = str(d.fields.get("mamba_ssm_dtype") or ("32" if d.model_type.startswith("qwen3_5") else "")).endswith("32")
    return total * (4.0 if wide else 2.0) / s.attention_tp
