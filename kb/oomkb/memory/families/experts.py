"""Routed experts in a ``config.json``: how many, how wide, and in which layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomkb.memory.names import of

Config = Mapping[str, Any]
_SHARED_WIDTHS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")


def _largest(value: Any) -> int:
    if isinstance(value, list | tuple):
        value = max((v for v in value if isinstance(v, int | float)), default=0)
    return int(value or 0)


def expert_fields(kind: str, c: Config, ffn: int, layers: int) -> dict[str, Any]:
    """Fields of :class:`~oomkb.memory.families.dimensions.Dims` about experts; none of them for a dense model."""
    inner = c.get("ffn_config")
    if kind == "dbrx" and isinstance(inner, Mapping):
        c = {**c, "num_experts": inner.get("moe_num_experts", 4), "num_experts_per_tok": inner.get("moe_top_k", 1)}
    experts = _largest(of(c, "experts", 0))
    if experts < 2 or c.get("is_moe") is False or c.get("enable_moe_block") is False:
        return {}
    width = _largest(of(c, "expert_ffn", ffn))
    if kind == "llama4_text":
        width = _largest(c.get("intermediate_size") or ffn)
    shared = next((_largest(c[k]) for k in _SHARED_WIDTHS if c.get(k)), 0)
    if not shared:
        count = 1 if kind == "llama4_text" else next((_largest(c[k]) for k in _SHARED_COUNTS if c.get(k)), 0)
        shared = count * width
    if c.get("use_mixed_mlp_moe") is False:
        shared = 0
    return {
        "experts": experts,
        "top_k": max(1, _largest(of(c, "top_k", 2))),
        "expert_ffn": width,
        "expert_latent": int(c.get("moe_latent_size") or 0),
        "shared_ffn": shared,
        "sparse": _sparse(kind, c, layers),
        "dense_too": bool(c.get("enable_moe_block")) or kind == "longcat_flash",
        "idle_experts": int(c.get("zero_expert_num") or 0),
    }


def _sparse(kind: str, c: Config, layers: int) -> tuple[bool, ...]:
    """Which layers route, by whichever of the known keys the configuration has."""
    if kind == "longcat_flash":  # every second half-layer
        return tuple(i % 2 == 0 for i in range(layers))
    types = c.get("mlp_layer_types")
    if isinstance(types, list | tuple) and len(types) >= layers:
        return tuple(str(t) != "dense" for t in types[:layers])
    listed = c.get("moe_layers")
    if isinstance(listed, list | tuple):
        return tuple(i in listed for i in range(layers))
    flags = c.get("moe_layer_freq")
    if isinstance(flags, list | tuple) and len(flags) >= layers:
        return tuple(bool(flag) for flag in flags[:layers])
    blocks = c.get("layers_block_type") or c.get("hybrid_override_pattern")
    if blocks and any(str(b) in ("moe", "E") for b in blocks):
        found = tuple(str(b) in ("moe", "E") for b in blocks)[:layers]
        return found + (False,) * (layers - len(found))
    first = int(c.get("first_k_dense_replace") or c.get("moe_layer_start_index") or c.get("num_dense_layers") or 0)
    last = c.get("moe_layer_end_index")
    last = layers - 1 if not isinstance(last, int) or last < 0 else last
    dense = frozenset(c.get("mlp_only_layers") or ())
    period = _largest(c.get("expert_layer_period"))
    if period:
        offset = _largest(c.get("expert_layer_offset"))
        return tuple(i % period == offset for i in range(layers))
    steps = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval")
    every = max(1, next((_largest(c[k]) for k in steps if c.get(k)), 1))
    return tuple(first <= i <= last and i not in dense and (i + 1) % every == 0 for i in range(layers))
