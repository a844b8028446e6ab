"""The dimensions in a ``config.json``, whatever the family calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import JobError, Note, note
from oomkb.memory.families.encoder_decoder import is_pair, pair_config
from oomkb.memory.families.family import ATTENTION_FREE, DECODERS, FAMILIES, UNKNOWN, Family, gate_of, layer_extra
from oomkb.memory.families.layer_kinds import by_layer, expert_fields, mixers_of
from oomkb.memory.names import ACTS, NAMES, of, text_config

_LAYERS_LIMIT: Final = 4_096
"""Layers are listed one by one; the deepest model known has 126, scaling studies some thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """The numbers of a decoder, with a family's defaults filled in."""

    model_type: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    tied: bool
    act: str
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    norms: int
    parallel: bool
    qk_norm: str
    embed_width: int
    position_rows: int
    final_norm: bool = True
    windows: tuple[int | None, ...] = ()
    """Attention window by layer; empty where every layer sees everything."""
    dropout: float = 0.0
    attention_dropout: float = 0.0
    embed_dropout: float = 0.0
    attention_softcap: bool = False
    logit_softcap: bool = False
    logit_scale: bool = False
    rotary_dim: int = 0
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    expert_latent: int = 0
    """What the routed experts read and write, where that is no hidden state (Nemotron 3 Super)."""
    shared_ffn: int = 0
    sparse: tuple[bool, ...] = ()
    """Which layers route to experts."""
    dense_too: bool = False
    """Sparse layers have a dense block beside their experts."""
    idle_experts: int = 0
    """Places of the router behind which there are no weights (LongCat)."""
    router_correction: bool = False
    sinks: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_dim: int = 0
    qk_rope_dim: int = 0
    v_head_dim: int = 0
    max_positions: int = 0
    mixers: tuple[str, ...] = ()
    """What mixes tokens, by layer (:mod:`oomkb.memory.families.layer_kinds`); empty where all layers are attention."""
    encoder_layers: int = 0
    """Layers of an encoder, which come before the decoder's; those attend to its output as well."""
    encoder_changes: tuple[tuple[str, Any], ...] = ()
    gate: str = ""
    """A gate on attention's output: ``query`` (in a query projection of twice the width), ``full`` or ``head``."""
    kv_shared: bool = False
    k_is_v: bool = False
    plain_mlp: bool = False
    """No gated feed-forward, although the family has one (T5)."""
    index_heads: int = 0
    """Heads of the indexer of sparse attention (DeepSeek-V3.2)."""
    index_dim: int = 0
    layer_input: int = 0
    """Width of the input that every layer gets of its own (Gemma 3n)."""
    laurel_rank: int = 0
    layer_extra: int = 0
    """Parameters of a layer that are neither matrices nor norms of a known place."""
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    """The decoder's part of the configuration, with the family's defaults."""

    @property
    def q_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads."""
        return self.kv_heads * self.head_dim

    @property
    def v_width(self) -> int:
        """Width of all value heads."""
        return self.kv_heads * (self.v_head_dim or self.head_dim)

    @property
    def o_width(self) -> int:
        """Width of what attention hands to its output projection."""
        return self.heads * (self.v_head_dim or self.head_dim)

    @property
    def expert_io(self) -> int:
        """Width of what a routed expert reads and writes."""
        return self.expert_latent or self.hidden

    @property
    def qk_head_dim(self) -> int:
        """Head size of queries and keys under latent attention."""
        return self.qk_nope_dim + self.qk_rope_dim

    @property
    def qk_norm_params(self) -> int:
        """Parameters of the norms on queries and keys in one layer."""
        if self.qk_norm == "head":
            return self.head_dim * (1 if self.kv_shared else 2)
        if self.qk_norm == "heads":
            return self.q_width + self.kv_width
        return self.q_width + self.kv_width if self.qk_norm == "full" else 0

    @property
    def latent_norm_params(self) -> int:
        """Parameters of the norms on the latents of MLA."""
        return self.kv_lora_rank + self.q_lora_rank + 2 * self.index_dim

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of KV cache that one token needs in one layer."""
        return self.kv_lora_rank + self.qk_rope_dim if self.kv_lora_rank else self.kv_width + self.v_width

    def is_moe(self, layer: int) -> bool:
        """Whether layer number ``layer`` routes to experts."""
        return bool(self.sparse) and self.sparse[layer]

    def window_of(self, layer: int) -> int | None:
        """The attention window of a layer, ``None`` for full attention."""
        return self.windows[layer] if self.windows else None


def read_dims(config: Mapping[str, Any]) -> tuple[Dims, Family, bool, tuple[Note, ...]]:
    """Dimensions and family of a configuration, whether the family is known, and warnings.

    :raises JobError: where hidden size, layer count or heads cannot be found or are impossible.
    """
    text = text_config(config)
    kind = str(text.get("model_type") or config.get("model_type") or "").lower()
    kind = DECODERS.get(kind, kind)
    family = FAMILIES.get(kind, UNKNOWN)
    known = kind in FAMILIES
    if kind == "chatglm" and (text.get("inner_hidden_size") or text.get("position_encoding_2d")):
        family, kind = FAMILIES["chatglm1"], "chatglm1"
    if kind == "phi3" and of(text, "experts"):
        family, kind = FAMILIES["phimoe"], "phimoe"
    warnings = () if known else (note("estimate.kind-unknown", kind=kind or "?"),)
    merged = {**(family.defaults or {}), **{k: v for k, v in text.items() if v is not None}}
    return _dims(kind, family, merged), family, known, warnings


def _size(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = of(config, name, default)
    if isinstance(value, list | tuple) and value:
        value = max((v for v in value if isinstance(v, int | float)), default=None)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 1:
        keys = " or ".join(NAMES.get(name, (name,)))
        raise JobError(
            f"the model's configuration has no usable {keys}", where="model", hint="give config.json's dimensions"
        )
    return int(value)


def _flag(config: Mapping[str, Any], flag: bool | str | Any) -> bool:
    return bool(config.get(flag, False)) if isinstance(flag, str) else bool(flag)


def _kv_heads(kind: str, c: Mapping[str, Any], heads: int) -> int:
    if kind == "falcon":
        if c.get("new_decoder_architecture"):
            return int(of(c, "kv_heads", heads))
        return 1 if c.get("multi_query") else heads
    if kind == "gpt_bigcode":
        return 1 if c.get("multi_query", True) else heads
    if kind == "dbrx" and isinstance(c.get("attn_config"), Mapping):
        return int(c["attn_config"].get("kv_n_heads", heads))
    if kind == "chatglm":
        return int(c.get("multi_query_group_num", 2)) if c.get("multi_query_attention", True) else heads
    return int(of(c, "kv_heads", heads))


def _ffn(kind: str, c: Mapping[str, Any], hidden: int) -> int:
    value = of(c, "ffn")
    if kind == "dbrx" and isinstance(c.get("ffn_config"), Mapping):
        value = c["ffn_config"].get("ffn_hidden_size")
    if kind == "llama4_text":
        value = c.get("intermediate_size_mlp") or value
    if kind.startswith("granitemoe") and not of(c, "experts"):
        value = c.get("shared_intermediate_size") or value
    if kind == "mpt":
        value = int(c.get("expansion_ratio", 4)) * hidden
    if value is None:
        return 4 * hidden
    size = _size({"ffn_dim": value}, "ffn")
    if kind == "lfm2":
        return _adjusted(c, size)
    return size // 2 if kind in ("qwen", "recurrent_gemma") else size


def _adjusted(c: Mapping[str, Any], size: int) -> int:
    """LFM2's feed-forward width: two thirds, times a factor, rounded up."""
    if not c.get("block_auto_adjust_ff_dim", True):
        return size
    size = int(float(c.get("block_ffn_dim_multiplier") or 1) * int(2 * size / 3))
    step = int(c.get("block_multiple_of") or 256)
    return step * -(-size // step)


def _head_dim(c: Mapping[str, Any], hidden: int, heads: int) -> int:
    value = c.get("head_dim") or c.get("kv_channels") or c.get("head_size")
    return int(value) if value else hidden // heads


def _windows(kind: str, c: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    window = c.get("sliding_window")
    if not window or c.get("use_sliding_window") is False:
        return ()
    if kinds := by_layer(c, "layer_types", layers):
        found = tuple(int(window) if "sliding" in str(k) else None for k in kinds)
        return found if any(found) else ()
    pattern = int(c.get("sliding_window_pattern") or c.get("_sliding_window_pattern") or 0)
    if pattern > 1:
        return tuple(None if (i + 1) % pattern == 0 else int(window) for i in range(layers))
    if kind in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        if not c.get("use_sliding_window"):
            return ()
        full = int(c.get("max_window_layers") or 0)
        return tuple(None if i < full else int(window) for i in range(layers))
    return (
        (int(window),) * layers if kind in ("mistral", "mixtral", "phi3", "starcoder2", "ministral", "phimoe") else ()
    )


def _positions(family: Family, c: Mapping[str, Any]) -> int:
    if family.positions != "learned":
        return 0
    rows = int(c.get("max_position_embeddings") or c.get("n_positions") or c.get("n_ctx") or 1024)
    return rows + (2 if "ffn_dim" in c else 0)  # OPT keeps two spare rows


def _norms(kind: str, family: Family, c: Mapping[str, Any]) -> int:
    if kind == "falcon" and (c.get("new_decoder_architecture") or not c.get("parallel_attn")):
        return 1 if c.get("num_ln_in_parallel_attn") == 1 else 2
    if kind == "stablelm" and c.get("use_parallel_residual"):
        return 1
    return family.norms


def _qk_norm(kind: str, family: Family, c: Mapping[str, Any]) -> str:
    if not family.qk_norm:
        return ""
    if family.qk_norm in ("head", "full"):
        return str(family.qk_norm)
    on = _flag(c, family.qk_norm)
    return ("heads" if kind in ("cohere", "stablelm") else "head") if on else ""


def _latent_fields(c: Mapping[str, Any]) -> dict[str, Any]:
    if not c.get("kv_lora_rank"):
        return {"v_head_dim": int(c.get("v_head_dim") or 0)}
    return {
        "kv_lora_rank": int(c["kv_lora_rank"]),
        "q_lora_rank": int(c.get("q_lora_rank") or 0),
        "qk_nope_dim": int(c.get("qk_nope_head_dim") or 128),
        "qk_rope_dim": int(c.get("qk_rope_head_dim") or 64),
        "v_head_dim": int(c.get("v_head_dim") or 128),
    }


def _dropouts(family: Family, c: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in ("dropout", "attention_dropout", "embed_dropout"):
        value = of(c, name)
        out[name] = float(value) if isinstance(value, int | float) else getattr(family, name)
    return out


def _heads(kind: str, c: Mapping[str, Any], hidden: int) -> int:
    """Attention heads; for a model without attention, as many as would fill its width."""
    if of(c, "heads") is None and (kind in ATTENTION_FREE or kind not in FAMILIES):
        return max(1, hidden // 64)
    return _size(c, "heads")


def _layers(kind: str, c: Mapping[str, Any]) -> int:
    for key in ("hybrid_override_pattern", "layers_block_type"):
        blocks = c.get(key)
        if isinstance(blocks, str | list | tuple) and blocks and of(c, "layers") is None:
            return len(blocks)
    return _size(c, "layers") * (2 if kind == "longcat_flash" else 1)


def _dims(kind: str, family: Family, c: Mapping[str, Any]) -> Dims:
    pair: dict[str, Any] = {}
    if is_pair(kind, c):
        c, pair = pair_config(kind, c)
    hidden, layers = _size(c, "hidden"), _layers(kind, c)
    if layers > _LAYERS_LIMIT:
        raise JobError(f"{layers:,} layers are more than {_LAYERS_LIMIT:,}", where="model.num_hidden_layers")
    heads = _heads(kind, c, hidden)
    kv_heads = _kv_heads(kind, c, heads)
    if kv_heads < 1 or heads % kv_heads:
        raise JobError(
            f"{heads} attention heads cannot share {kv_heads} key/value heads", where="model.num_key_value_heads"
        )
    ffn = _ffn(kind, c, hidden)
    head_dim = _head_dim(c, hidden, heads)
    if head_dim < 1 or ffn < 0:
        raise JobError("a width below zero", where="model.head_dim" if head_dim < 1 else "model.intermediate_size")
    act = str(of(c, "act", "")).lower()
    experts = expert_fields(kind, c, ffn, layers)
    return Dims(
        model_type=kind,
        vocab=_size(c, "vocab", 32_000),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        tied=bool(c.get("tie_word_embeddings", family.tied)),
        act=family.act if family.act in ("gelu_bloom", "xielu") or not act else ACTS.get(act, act),
        qkv_bias=_flag(c, family.qkv_bias),
        o_bias=_flag(c, family.o_bias),
        mlp_bias=_flag(c, family.mlp_bias),
        norms=_norms(kind, family, c),
        parallel=_flag(c, family.parallel),
        qk_norm=_qk_norm(kind, family, c),
        embed_width=int(c.get("word_embed_proj_dim") or hidden),
        position_rows=_positions(family, c),
        final_norm=family.final_norm and not (kind == "opt" and c.get("do_layer_norm_before") is False),
        windows=_windows(kind, c, layers),
        attention_softcap=bool(c.get("attn_logit_softcapping")),
        logit_softcap=bool(c.get("final_logit_softcapping")),
        logit_scale=bool(c.get("logit_scale") or c.get("logits_scaling")),
        rotary_dim=_rotary(family, c, head_dim),
        router_correction=family.router_bias and not family.expert_bias,
        sinks=heads if kind == "gpt_oss" else 0,
        max_positions=int(c.get("max_position_embeddings") or c.get("n_positions") or c.get("seq_length") or 0),
        mixers=mixers_of(kind, c, layers),
        gate=gate_of(family, c),
        index_heads=int(c.get("index_n_heads") or 0) if c.get("kv_lora_rank") else 0,
        index_dim=int(c.get("index_head_dim") or 0) if c.get("kv_lora_rank") else 0,
        layer_input=int(c.get("hidden_size_per_layer_input") or 0),
        laurel_rank=int(c.get("laurel_rank") or 0),
        layer_extra=layer_extra(kind, c, hidden, heads, head_dim),
        fields=MappingProxyType(dict(c)),
        **pair,
        **_dropouts(family, c),
        **experts,
        **_latent_fields(c),
    )


def _rotary(family: Family, c: Mapping[str, Any], head_dim: int) -> int:
    if family.positions != "rope":
        return 0
    if c.get("rotary_dim"):
        return int(c["rotary_dim"])
    rope = c.get("rope_parameters")
    nested = rope.get("partial_rotary_factor") if isinstance(rope, Mapping) else None
    fraction = c.get("partial_rotary_factor") or c.get("rotary_pct") or nested or family.rotary_fraction
    return int(head_dim * float(fraction))
