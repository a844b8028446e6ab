"""The form of a model family, and the families themselves: rows of ``families.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError
from oomkb.tables import read_table, spellings

if TYPE_CHECKING:
    from oomkb.memory.families.dimensions import Dims


ATTENTION_FREE: Final = frozenset({"mamba", "mamba2", "falcon_mamba", "deepseek_v4"})


def gate_of(family: Family, c: Mapping[str, Any]) -> str:
    """The gate on attention's output, by the family or by the key that switches one on."""
    if c.get("attn_output_gate") is not None:
        return (family.gate or "query") if c["attn_output_gate"] else ""
    if c.get("mla_use_output_gate") is not None:
        return "full" if c["mla_use_output_gate"] else ""
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


FILE: Final = Path(__file__).with_name("families.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a decoder layer of a family is put together, sizes apart."""

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
    scaled_residual: bool = False
    """What a block adds to the residual is multiplied first."""
    embed_norm: bool = False
    softmax: str = "fp32"
    """How eager attention takes its softmax: ``fp32``, ``input`` (the scores' dtype), ``sinks`` (a column more),
    ``scores`` (queries and keys in fp32 before)."""
    lean_mask: bool = False
    """Its SDPA path relies on causality alone, so that no mask is made for an unpadded batch."""
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


_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "norm": frozenset({"rms", "rms-wide", "rms-gemma", "ln", "ln-nobias", "ln-plain", "ln-fp32"}),
    "qkv": frozenset({"split", "fused"}),
    "gate_up": frozenset({"split", "fused"}),
    "post_norms": frozenset({"none", "sandwich", "only"}),
    "positions": frozenset({"rope", "learned", "alibi", "none"}),
    "softmax": frozenset({"fp32", "input", "sinks", "scores"}),
    "gate": frozenset({"", "query", "full", "head"}),
}
"""The words that a field takes, where any other is a slip."""
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    f.name: (bool, str) if "bool | str" in str(f.type) or "str | bool" in str(f.type) else (type(f.default),)
    for f in fields(Family)
    if f.name not in ("names", "defaults")
}
_NAMES: Final = 7


def families_of(rows: Mapping[str, Mapping[str, Any]], same: Mapping[str, str]) -> dict[str, Family]:
    """The families by ``model_type``, from the sections ``families`` and ``same``.

    :raises CatalogError: naming the row, for an unknown field, word or row, a row that is like itself, or a name twice.
    """
    found: dict[str, Family] = {}

    def row(name: str, above: tuple[str, ...] = ()) -> Family:
        if name in found:
            return found[name]
        if name not in rows or name in above:
            raise CatalogError(f"{name} is no family" if name not in rows else "is like itself", where="/".join(above))
        values = dict(rows[name])
        start = row(values.pop("like"), (*above, name)) if "like" in values else Family()
        found[name] = replace(start, **{"defaults": None, **{k: _checked(name, k, v) for k, v in values.items()}})
        return found[name]

    for name in rows:
        row(name)
    for twin, name in spellings(same):
        if twin in found:
            raise CatalogError("has a row of its own, too", where=f"same.{twin}")
        found[twin] = row(name)
    return found


def _checked(name: str, field: str, value: Any) -> Any:
    where = f"families.{name}.{field}"
    if field == "names" and isinstance(value, str) and len(value.split()) == _NAMES:
        return tuple("" if word == "-" else word for word in value.split())
    if field == "defaults" and isinstance(value, dict):
        return value
    if field not in _KINDS:
        raise CatalogError("no such field, or not of its form", where=where)
    if type(value) not in _KINDS[field] or value not in _WORDS.get(field, (value,)):
        raise CatalogError(f"{value!r} is none of its values", where=where)
    return value


_TABLE: Final = read_table(FILE, "families", "same", "wrappers", "towers", "routers")
FAMILIES: Final[Mapping[str, Family]] = families_of(_TABLE["families"], _TABLE["same"])
"""By ``model_type``."""
UNKNOWN: Final = FAMILIES["llama"]
"""How a family without a row is read."""
DECODERS: Final[Mapping[str, str]] = dict(spellings(_TABLE["wrappers"]))
"""``model_type`` of a vision-language wrapper or of remote code -> that of the decoder inside."""
TOWERS: Final[Mapping[str, str]] = dict(spellings(_TABLE["towers"]))
"""``model_type`` of a whole model -> the row of its vision tower's layers."""
ROUTERS: Final[Mapping[str, str]] = dict(spellings(_TABLE["routers"]))
"""``model_type`` -> how experts are chosen and weighted (:mod:`oomkb.memory.moe`)."""
