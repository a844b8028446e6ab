"""Layer by layer: which mixer, which feed-forward block, which window, and what differs from the other layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from oomkb.dataclass import dataclass
from oomkb.memory.families.mixers import linear_kind
from oomkb.memory.names import of

if TYPE_CHECKING:
    from oomkb.memory.families.dimensions import Dims

_SHARED_WIDTHS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
Config = Mapping[str, Any]
_PATTERN: Final[Mapping[str, str]] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_FIELDS: Final = (
    ("head_dim", "head_dim"),
    ("num_attention_heads", "heads"),
    ("num_key_value_heads", "kv_heads"),
    ("v_head_dim", "v_head_dim"),
    ("intermediate_size", "ffn"),
    ("kv_lora_rank", "kv_lora_rank"),
    ("qk_nope_head_dim", "qk_nope_dim"),
    ("q_lora_rank", "q_lora_rank"),
)


def by_layer(c: Config, key: str, layers: int) -> Sequence[Any]:
    """What a list of the configuration says of each layer; empty where it has none that is long enough."""
    listed = c.get(key)
    return listed[:layers] if isinstance(listed, list | tuple) and len(listed) >= layers else ()


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
        "expert_latent": int(c.get("moe_latent_size") or c.get("routed_expert_hidden_size") or 0),
        "shared_ffn": shared,
        "sparse": _sparse(kind, c, layers),
        "dense_too": bool(c.get("enable_moe_block")) or kind == "longcat_flash",
        "idle_experts": int(c.get("zero_expert_num") or 0),
    }


def _sparse(kind: str, c: Config, layers: int) -> tuple[bool, ...]:
    """Which layers route, by whichever of the known keys the configuration has."""
    if kind == "longcat_flash":  # every second half-layer
        return tuple(i % 2 == 0 for i in range(layers))
    if types := by_layer(c, "mlp_layer_types", layers):
        return tuple(str(t) != "dense" for t in types)
    listed = c.get("moe_layers")
    if isinstance(listed, list | tuple):
        return tuple(i in listed for i in range(layers))
    if flags := by_layer(c, "moe_layer_freq", layers):
        return tuple(bool(flag) for flag in flags)
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


@dataclass(frozen=True, slots=True)
class Slot:
    """One layer's place in the plan; equal slots are layers of the same kind."""

    mixer: str = "attention"
    """``attention``, ``none``, a key of :data:`oomkb.memory.families.mixers.MIXERS`, or ``attention+`` one of them."""
    feed: str = "dense"
    """``dense``, ``moe``, ``both`` or ``none``."""
    window: int | None = None
    cross: bool = False
    """A second attention, over an encoder's output."""
    change: tuple[tuple[str, Any], ...] = ()
    """Fields of :class:`~oomkb.memory.families.dimensions.Dims` that differ in this layer."""

    @property
    def kind(self) -> str:
        """As :attr:`oomkb.memory.shape.ModelShape.kinds` calls it."""
        feed = "moe" if self.feed == "both" else self.feed
        if self.mixer == "attention":
            return feed if feed != "none" else "attention none"
        part = "both" if "+" in self.mixer else "none" if self.mixer == "none" else "mixer"
        return f"{part} {feed}"


def mixers_of(kind: str, c: Config, layers: int) -> tuple[str, ...]:
    """The mixer of each layer; empty where all of them are attention."""
    if kind in ("mamba", "mamba2", "falcon_mamba"):
        return (linear_kind(c),) * layers
    if kind == "falcon_h1":
        return ("attention+mamba2",) * layers
    if kind == "deepseek_v4":
        return tuple(_compression(kind) for kind in _compressions(c, layers))
    names = _names(c, layers)
    if not names:
        return ()
    found = tuple(_mixer(name, c) for name in names)
    return found if any(m != "attention" for m in found) else ()


def _compressions(c: Config, layers: int) -> list[str]:
    if types := by_layer(c, "layer_types", layers):
        return [str(t) for t in types]
    if ratios := by_layer(c, "compress_ratios", layers):  # the checkpoint's own spelling: one rate per layer
        return ["heavily" if r > 16 else "sparse" if r else "sliding" for r in ratios]
    return ["sparse" if i % 2 else "heavily" for i in range(layers)]


def _compression(name: str) -> str:
    return "hca" if name.startswith("heavily") else "csa" if "sparse" in name else "sca"


def _names(c: Config, layers: int) -> list[str]:
    """What the configuration says about each layer, in whichever way it says it."""
    pattern = c.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) >= layers:
        return [_PATTERN.get(letter, "attention") for letter in pattern][:layers]
    if types := by_layer(c, "layer_types", layers) or by_layer(c, "layers_block_type", layers):
        return [str(t) for t in types]
    blocks = c.get("block_types") or c.get("_block_types")
    if isinstance(blocks, list | tuple) and blocks:
        return [str(blocks[i % len(blocks)]) for i in range(layers)]
    if flags := by_layer(c, "attn_type_list", layers):
        return ["full" if flag else "linear" for flag in flags]
    full = _full_layers(c, layers)
    return [] if full is None else ["full" if i in full else "linear" for i in range(layers)]


def _full_layers(c: Config, layers: int) -> frozenset[int] | None:
    """Numbers of the layers with full attention, where the others have a linear mixer."""
    inner = c.get("linear_attn_config")
    if isinstance(inner, Mapping) and isinstance(inner.get("full_attn_layers"), list | tuple):
        return frozenset(int(i) - 1 for i in inner["full_attn_layers"])
    for key in ("full_attn_idxs", "attn_layer_indices"):
        if isinstance(c.get(key), list | tuple):
            return frozenset(int(i) for i in c[key])
    if isinstance(c.get("attn_layer_period"), int) and c["attn_layer_period"] > 0:
        period, offset = c["attn_layer_period"], int(c.get("attn_layer_offset") or 0)
        return frozenset(i for i in range(layers) if i % period == offset)
    every = c.get("full_attention_interval") or c.get("layer_group_size")
    if isinstance(every, int) and every > 1:
        return frozenset(i for i in range(layers) if (i + 1) % every == 0)
    if c.get("mamba_n_heads") and c.get("model_type") == "bamba":
        return frozenset()
    return None


def _mixer(name: str, c: Config) -> str:
    if name in ("mlp", "moe"):
        return "none"
    if name == "conv":
        return "conv"
    if name in ("recurrent", "mamba") or name.startswith("linear"):
        return linear_kind(c)
    return "attention"


def plan(d: Dims, c: Config) -> tuple[Slot, ...]:
    """Every layer of the model, encoder layers first."""
    shared = _shared_from(c, d.layers)
    single = _layer_by_layer(d, c)
    of_kind: dict[tuple[bool, bool], tuple[tuple[str, Any], ...]] = {}
    slots = []
    for i in range(d.layers):
        mixer = d.mixers[i] if d.mixers else "attention"
        cross = bool(d.encoder_layers) and i >= d.encoder_layers
        window = d.window_of(i) if mixer.startswith("attention") else None
        kind = (i >= shared, d.window_of(i) is None)
        if single or kind not in of_kind:
            of_kind[kind] = _changes(d, c, i, kind[0])
        slots.append(Slot(mixer, _feed(d, c, i, mixer), window, cross, of_kind[kind]))
    return tuple(slots)


def _layer_by_layer(d: Dims, c: Config) -> bool:
    """Whether layers of one kind may differ from each other: then each has to be asked."""
    named = (c.get("intermediate_size"), c.get("num_attention_heads_per_layer"))
    return bool(d.encoder_layers) or any(isinstance(v, list | tuple) for v in named) or "per_layer_config" in c


def _feed(d: Dims, c: Config, layer: int, mixer: str) -> str:
    blocks = c.get("layers_block_type") or c.get("hybrid_override_pattern") or ()
    if any(str(b) in ("mlp", "moe", "-", "E") for b in blocks):  # one block a layer
        return "none" if mixer != "none" else "moe" if d.is_moe(layer) else "dense"
    if d.model_type in ("mamba", "mamba2", "falcon_mamba"):
        return "none"
    if not d.is_moe(layer):
        return "dense"
    return "both" if d.dense_too else "moe"


def _shared_from(c: Config, layers: int) -> int:
    """First of the layers that take keys and values from an earlier one (Gemma 4).

    Gemma 3n's checkpoints hold the unused projections all the same.
    """
    if c.get("altup_num_inputs"):
        return layers
    count = c.get("num_kv_shared_layers")
    return layers - count if isinstance(count, int) and count > 0 else layers


def _changes(d: Dims, c: Config, layer: int, shared: bool) -> tuple[tuple[str, Any], ...]:
    changes: dict[str, Any] = {}
    widths = c.get("intermediate_size")
    if isinstance(widths, list | tuple) and layer < len(widths):
        changes["ffn"] = int(widths[layer])
    if shared:
        changes["kv_shared"] = True
        if c.get("use_double_wide_mlp"):
            changes["ffn"] = 2 * d.ffn
    changes |= _of_global_layers(c, d.window_of(layer) is None)
    listed = c.get("num_attention_heads_per_layer")
    if isinstance(listed, list | tuple) and layer < len(listed):
        changes["heads"] = int(listed[layer])
    own = c.get("per_layer_config")
    if isinstance(own, Mapping):
        changes |= _of_this_layer(own, layer)
    if d.encoder_layers and layer < d.encoder_layers:
        changes |= dict(d.encoder_changes)
    return tuple(sorted((k, v) for k, v in changes.items() if getattr(d, k) != v))


def _of_this_layer(own: Mapping[str, Any], layer: int) -> dict[str, Any]:
    for key in (str(layer), f"{layer:02d}", f"{layer:03d}"):
        found = own.get(key)
        if isinstance(found, Mapping):
            return {field: int(found[name]) for name, field in _FIELDS if isinstance(found.get(name), int)}
    return {}


def _of_global_layers(c: Config, full: bool) -> dict[str, Any]:
    """Gemma 4's wider heads in layers without a window, and MiMo's other heads in those with one."""
    pairs: Iterable[tuple[str, str]]
    if full:
        pairs = (("global_head_dim", "head_dim"), ("num_global_key_value_heads", "kv_heads"))
    else:
        pairs = (
            ("swa_num_key_value_heads", "kv_heads"),
            ("swa_head_dim", "head_dim"),
            ("swa_v_head_dim", "v_head_dim"),
        )
    changes: dict[str, Any] = {field: int(c[name]) for name, field in pairs if isinstance(c.get(name), int)}
    if full and c.get("attention_k_eq_v"):
        changes["k_is_v"] = True
    if not full and c.get("add_swa_attention_sink_bias"):
        changes["sinks"] = int(c.get("num_attention_heads") or 0)
    return changes
