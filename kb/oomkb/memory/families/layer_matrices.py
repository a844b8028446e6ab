"""The matrices of every kind of layer."""

from __future__ import annotations

from dataclasses import replace

from oomkb.memory.families.dimensions import Dims
from oomkb.memory.families.family import Family
from oomkb.memory.families.layer_kinds import Slot, plan
from oomkb.memory.families.matrix import LayerShape, Linear
from oomkb.memory.families.mixers import CACHING, MIXERS


def build_layers(d: Dims, family: Family) -> tuple[LayerShape, ...]:
    """The kinds of layers (dense or MoE, windowed or not, by mixer) and how many there are of each."""
    kinds: dict[Slot, int] = {}
    for slot in plan(d, d.fields):
        kinds[slot] = kinds.get(slot, 0) + 1
    return tuple(_layer(d, family, slot, count) for slot, count in sorted(kinds.items(), key=str))


def _layer(d: Dims, family: Family, slot: Slot, count: int) -> LayerShape:
    d = replace(d, **dict(slot.change)) if slot.change else d
    linears: list[Linear] = []
    other, moe = d.layer_extra, slot.feed in ("moe", "both")
    width = {"ln": 2, "ln-plain": 0}.get(family.norm, 1)
    norms = d.norms * d.hidden * width
    if slot.mixer.startswith("attention"):
        linears += _attention(d, family)
        norms += d.qk_norm_params + d.latent_norm_params
        other += d.sinks
    mixer = slot.mixer.removeprefix("attention+")
    if mixer in MIXERS:
        matrices, rest = MIXERS[mixer](d.fields, d.hidden)
        linears += matrices
        other += rest
    if slot.cross:
        linears += _attention(d, family)
        norms += d.hidden * width
    if slot.feed in ("dense", "both"):
        linears += _mlp(d, family, d.ffn)
    if moe:
        linears += _experts(d, family)
        other += d.experts + d.idle_experts if d.router_correction else 0
    linears += _beside(d)
    caches = (slot.mixer.startswith("attention") or slot.mixer in CACHING) and not d.kv_shared
    kept = d.kv_elements_per_token if caches else 0
    return LayerShape(count, tuple(linears), norms, other, slot.window, moe, kept, d.kv_heads)


def _attention(d: Dims, family: Family) -> tuple[Linear, ...]:
    gate = _gate(d)
    if d.kv_lora_rank:
        return (*_latent_attention(d), *gate)
    n = family.names
    q = d.q_width * (2 if d.gate == "query" else 1)
    out = Linear(n[3], d.o_width, d.hidden, d.o_bias, part="attention")
    if family.qkv == "fused":
        return (Linear(n[0], d.hidden, q + d.kv_width + d.v_width, d.qkv_bias, part="attention"), *gate, out)
    query = Linear(n[0], d.hidden, q, d.qkv_bias, part="attention")
    if d.kv_shared:
        return (query, *gate, out)
    k_bias = d.qkv_bias and not family.no_k_bias
    key = Linear(n[1], d.hidden, d.kv_width, k_bias, part="attention")
    if d.k_is_v:
        return (query, key, *gate, out)
    return (query, key, Linear(n[2], d.hidden, d.v_width, d.qkv_bias, part="attention"), *gate, out)


def _gate(d: Dims) -> tuple[Linear, ...]:
    """A gate on attention's output, of full width or one value per head."""
    if d.gate == "full":
        return (Linear("gate_proj", d.hidden, d.o_width, part="attention"),)
    return (Linear("g_proj", d.hidden, d.heads, part="attention"),) if d.gate == "head" else ()


def _latent_attention(d: Dims) -> tuple[Linear, ...]:
    """DeepSeek's multi-head latent attention (arXiv 2405.04434, section 2.1), with V3.2's indexer where it has one."""
    part = "attention"
    query: tuple[Linear, ...] = (Linear("q_proj", d.hidden, d.heads * d.qk_head_dim, part=part),)
    if d.q_lora_rank:
        query = (
            Linear("q_a_proj", d.hidden, d.q_lora_rank, d.qkv_bias, part=part),
            Linear("q_b_proj", d.q_lora_rank, d.heads * d.qk_head_dim, part=part),
        )
    index: tuple[Linear, ...] = ()
    if d.index_heads:
        index = (
            Linear("wq_b", d.q_lora_rank or d.hidden, d.index_heads * d.index_dim, part=part),
            Linear("wk", d.hidden, d.index_dim, part=part),
            Linear("weights_proj", d.hidden, d.index_heads, part=part),
        )
    return (
        *query,
        Linear("kv_a_proj_with_mqa", d.hidden, d.kv_lora_rank + d.qk_rope_dim, d.qkv_bias, part=part),
        Linear("kv_b_proj", d.kv_lora_rank, d.heads * (d.qk_nope_dim + d.v_head_dim), part=part),
        Linear("o_proj", d.heads * d.v_head_dim, d.hidden, d.o_bias, part=part),
        *index,
    )


def _mlp(d: Dims, family: Family, width: int, *, part: str = "mlp", prefix: str = "") -> tuple[Linear, ...]:
    n = family.names
    down = Linear(prefix + n[6], width, d.hidden, d.mlp_bias, part=part)
    if not family.gated or d.plain_mlp:
        return (Linear(prefix + n[5], d.hidden, width, d.mlp_bias, part=part), down)
    if family.gate_up == "fused":
        return (Linear(prefix + n[4], d.hidden, 2 * width, d.mlp_bias, part=part), down)
    up = Linear(prefix + n[5], d.hidden, width, d.mlp_bias, part=part)
    return (Linear(prefix + n[4], d.hidden, width, d.mlp_bias, part=part), up, down)


def _experts(d: Dims, family: Family) -> tuple[Linear, ...]:
    # transformers 5 keeps all experts of a layer in one parameter per projection, so LoRA on linear modules skips
    # them; earlier versions had a module each (config.json does not tell; the job's framework version does).
    wide = d.expert_ffn if not family.gated or d.plain_mlp else 2 * d.expert_ffn
    expert: tuple[Linear, ...] = (
        Linear("gate_up_proj", d.expert_io, wide, family.expert_bias, d.experts, False, "expert"),
        Linear("down_proj", d.expert_ffn, d.expert_io, family.expert_bias, d.experts, False, "expert"),
    )
    bias = family.router_bias and family.expert_bias
    router = Linear("gate", d.hidden, d.experts + d.idle_experts, bias, module=False, part="router")
    shared: tuple[Linear, ...] = ()
    if d.shared_ffn:
        shared = _mlp(d, family, d.shared_ffn, part="shared")
        if family.shared_gate:
            shared = (*shared, Linear("shared_expert_gate", d.hidden, 1, part="shared"))
    if d.expert_latent:
        down, up = Linear("fc1_latent_proj", d.hidden, d.expert_io), Linear("fc2_latent_proj", d.expert_io, d.hidden)
        shared = (down, up, *shared)
    return (router, *expert, *shared)


def _beside(d: Dims) -> tuple[Linear, ...]:
    """Gemma 3n's and 4's per-layer inputs and low-rank residual."""
    linears: tuple[Linear, ...] = ()
    if d.layer_input:
        linears += (
            Linear("per_layer_input_gate", d.hidden, d.layer_input),
            Linear("per_layer_projection", d.layer_input, d.hidden),
        )
    if d.laurel_rank:
        linears += (Linear("linear_left", d.hidden, d.laurel_rank), Linear("linear_right", d.laurel_rank, d.hidden))
    return linears
