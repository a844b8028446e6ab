"""The form of a family's row: how a decoder layer is put together, sizes apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Family"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a decoder layer of this family is put together."""

    norm: str = "rms"
    """``rms``, ``rms-wide`` and ``rms-gemma`` (multiply in fp32, the latter by one more), ``ln``, ``ln-nobias``,
    ``ln-plain`` (no parameters), ``ln-fp32`` (Cohere's, written out in fp32)."""
    norms: int = 2
    """Norms of width ``hidden`` in one layer."""
    gated: bool = True
    act: str = "silu"
    qkv: str = "split"
    """``split``: three projections; ``fused``: one of width q + k + v."""
    gate_up: str = "split"
    names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Module names in the order q, k, v, o, gate, up, down; a fused projection repeats its name."""
    qkv_bias: bool | str = False
    """A flag, or the configuration key that holds it."""
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    head_bias: bool = False
    qk_norm: str | bool = False
    """``head`` (one weight of head_dim), ``full`` (over all heads), or the key that switches ``head`` on."""
    parallel: bool | str = False
    """Attention and MLP read the same input and are added together."""
    post_norms: str = "none"
    """``none``; ``sandwich``: norms before and after (Gemma 2, GLM-4); ``only``: only after (OLMo 2)."""
    positions: str = "rope"
    """``rope``, ``learned``, ``alibi``, ``none``."""
    rotary_fraction: float = 1.0
    wide_rotary: bool = False
    """Its tables of sines stay in fp32."""
    tied: bool = False
    dropout: float = 0.0
    """Default residual dropout."""
    attention_dropout: float = 0.0
    embed_dropout: float = 0.0
    eager: bool = False
    """transformers refuses SDPA for it (soft-capped scores, attention sinks)."""
    scaled_embed: bool = False
    embed_norm: bool = False
    softmax: str = "fp32"
    """How eager attention takes its softmax: ``fp32``, ``input`` (the scores' dtype), ``sinks`` (a column more),
    ``scores`` (queries and keys in fp32 before)."""
    lean_mask: bool = False
    """Its SDPA path relies on causality alone, so that no mask is made for an unpadded batch."""
    experts: str = "none"
    """``none``, ``fused`` (one three-dimensional parameter per projection), ``linear`` (a module each)."""
    shared_gate: bool = False
    """A sigmoid gate of width one on the shared expert."""
    no_k_bias: bool = False
    """The key projection has no bias, although queries and values have one (Whisper)."""
    gate: str = ""
    """A gate on attention's output (:class:`oomkb.memory.families.dimensions.Dims`)."""
    final_norm: bool = True
    router_bias: bool = False
    expert_bias: bool = False
    defaults: Mapping[str, Any] | None = None
    """Configuration defaults of the class, where a shipped config.json may leave the key out."""
