"""What single families have in a layer that no dimension tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from oomkb.memory.families.family import Family

if TYPE_CHECKING:
    from oomkb.memory.families.dimensions import Dims

ATTENTION_FREE: Final = frozenset({"mamba", "mamba2", "falcon_mamba", "deepseek_v4"})


def gate_of(family: Family, c: Mapping[str, Any]) -> str:
    """The gate on attention's output, by the family or by the key that switches one on."""
    if c.get("attn_output_gate") is not None:
        return (family.gate or "query") if c["attn_output_gate"] else ""
    if c.get("use_attention_gate") is not None or c.get("gating") is not None:
        return "head" if c.get("use_attention_gate") or c.get("gating") else ""
    return family.gate


def layer_extra(kind: str, c: Mapping[str, Any], hidden: int, heads: int, head_dim: int) -> int:
    """Scales and small routers of one layer."""
    extra = 0
    copies = int(c.get("altup_num_inputs") or 0)
    if copies:  # Gemma 3n's alternating updates: scale, coefficients, router with its norm; LAuReL's norm
        extra += hidden + copies**2 + copies**3 + copies * hidden + hidden + hidden
    if c.get("hidden_size_per_layer_input"):
        extra += hidden
    if c.get("enable_moe_block"):  # Gemma 4: three norms more, scales of the router's input and of every expert
        extra += 4 * hidden + int(c.get("num_experts") or 0)
    if kind == "doge":  # scales of both residual streams, and the dynamic mask's
        kv = int(c.get("num_key_value_heads") or heads)
        extra += 2 * hidden + kv + kv * kv * head_dim
    return extra


def buffer_bytes(d: Dims) -> int:
    """Causal masks that old families keep as buffers, for all positions (transformers 5.23)."""
    square = d.position_rows**2
    if d.model_type == "gpt_bigcode":
        return square
    if d.model_type == "gpt_neo":
        return square * d.layers
    return 4 * square * d.layers if d.model_type == "openai-gpt" else 0
