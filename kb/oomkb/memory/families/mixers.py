"""What mixes tokens in a layer, where it is not (only) softmax attention: matrices and other parameters.

Read from transformers 5.23: ``mamba``, ``mamba2``, ``jamba``, ``bamba``, ``falcon_h1``, ``nemotron_h``,
``qwen3_next``, ``olmo_hybrid``, ``kimi_linear``, ``minimax``, ``lfm2``, ``recurrent_gemma``. Sizes are found by what
the configuration calls them, so a family that is not named here but uses the same mixer is read as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from oomkb.memory.families.matrix import Linear
from oomkb.memory.names import whole

Config = Mapping[str, Any]
Mixed = tuple[tuple[Linear, ...], int]
CACHING: Final = frozenset({"csa", "hca", "sca"})
"""Mixers that are attention all the same, and keep something of every token."""
Sizes = Mapping[str, float]
_DELTA_CHUNK: Final = 64


def _matrix(name: str, inputs: int, outputs: int, bias: bool = False) -> Linear:
    return Linear(name, inputs, outputs, bias, part="mixer")


def linear_kind(c: Config) -> str:
    """Which mixer a layer called ``linear_attention``, ``mamba`` or the like is, by the sizes that are given."""
    if c.get("linear_num_value_heads"):
        return "delta"
    if c.get("linear_num_heads") or c.get("linear_attn_config"):
        return "kda"
    if c.get("lru_width"):
        return "rglru"
    if c.get("conv_L_cache"):
        return "conv"
    if _mamba_heads(c):
        return "mamba2"
    if c.get("mamba_d_state") or c.get("state_size"):
        return "mamba"
    return "lightning"


def _mamba_heads(c: Config) -> int:
    own = "num_heads" if c.get("model_type") == "mamba2" else "mamba_num_heads"
    return whole(c, "mamba_n_heads", "mamba_num_heads", own)


def _mamba(c: Config, h: int) -> Mixed:
    """Selective state space, first version (arXiv 2312.00752)."""
    inner = whole(c, "mamba_expand", "expand", default=2) * h
    state = whole(c, "mamba_d_state", "state_size", default=16)
    rank = whole(c, "mamba_dt_rank", "time_step_rank", default=math.ceil(h / 16))
    kernel = whole(c, "mamba_d_conv", "conv_kernel", default=4)
    bias = bool(c.get("mamba_proj_bias") or c.get("use_bias"))
    conv_bias = bool(c.get("mamba_conv_bias", c.get("use_conv_bias", True)))
    rest = inner * (kernel + conv_bias) + inner * state + inner
    if c.get("model_type") == "jamba":
        rest += rank + 2 * state
    return (
        _matrix("in_proj", h, 2 * inner, bias),
        _matrix("x_proj", inner, rank + 2 * state),
        _matrix("dt_proj", rank, inner, True),
        _matrix("out_proj", inner, h, bias),
    ), rest


def _duality(c: Config, h: int) -> tuple[int, int, int, int, int]:
    """(heads, inner width, groups, state, kernel of the convolution) of a state space duality."""
    names = ("mamba_d_head", "mamba_head_dim", *(("head_dim",) if c.get("model_type") == "mamba2" else ()))
    wide = _mamba_heads(c) * whole(c, *names) or whole(c, "mamba_expand", "expand", default=2) * h
    groups = whole(c, "mamba_n_groups", "n_groups", default=1)
    state = whole(c, "mamba_d_state", "ssm_state_size", "state_size", default=128)
    kernel = whole(c, "mamba_d_conv", "conv_kernel", default=4)
    return _mamba_heads(c), whole(c, "mamba_d_ssm") or wide, groups, state, kernel


def _mamba2(c: Config, h: int) -> Mixed:
    """State space duality (arXiv 2405.21060)."""
    heads, inner, groups, state, kernel = _duality(c, h)
    mixed = inner + 2 * groups * state
    bias = bool(c.get("mamba_proj_bias") or c.get("use_bias") or c.get("add_bias_linear"))
    conv_bias = bool(c.get("mamba_conv_bias", c.get("use_conv_bias", True)))
    norm = inner if c.get("mamba_rms_norm", True) else 0
    linears = (_matrix("in_proj", h, inner + mixed + heads, bias), _matrix("out_proj", inner, h, bias))
    return linears, mixed * (kernel + conv_bias) + 3 * heads + norm


def _delta_of(c: Config) -> tuple[int, int, int, int, int]:
    """(key heads, value heads, width of a key and of a value, kernel of the convolution) of a gated delta rule."""
    heads = whole(c, "linear_num_value_heads")
    key = whole(c, "linear_key_head_dim", default=128)
    value = whole(c, "linear_value_head_dim", default=128)
    kernel = whole(c, "linear_conv_kernel_dim", default=4)
    return whole(c, "linear_num_key_heads") or heads, heads, key, value, kernel


def _delta(c: Config, h: int) -> Mixed:
    """Gated delta rule (arXiv 2412.06464)."""
    key_heads, heads, key, value, kernel = _delta_of(c)
    key_dim, value_dim = key_heads * key, heads * value
    mixed = 2 * key_dim + value_dim
    kind = str(c.get("model_type", ""))
    widths = {"in_proj_qkvz": mixed + value_dim, "in_proj_ba": 2 * heads}
    if kind.startswith("qwen3_5"):
        widths = {"in_proj_qkv": mixed, "in_proj_z": value_dim, "in_proj_b": heads, "in_proj_a": heads}
    if kind == "olmo_hybrid":
        widths = {"q_proj": key_dim, "k_proj": key_dim, "v_proj": value_dim, "a_proj": heads}
        widths |= {"b_proj": heads, "g_proj": value_dim}
    out = _matrix("o_proj" if kind == "olmo_hybrid" else "out_proj", value_dim, h)
    linears = (*(_matrix(name, h, width) for name, width in widths.items()), out)
    return linears, mixed * kernel + 2 * heads + value


def _kda(c: Config, h: int) -> Mixed:
    """Kimi delta attention (arXiv 2510.26692): low-rank gates, full ones where the configuration is Bailing's, and an
    output gate of full rank where it says so (Kimi K3).
    """
    inner = c.get("linear_attn_config")
    own = {**c, **inner} if isinstance(inner, Mapping) else c
    heads = whole(own, "linear_num_heads", "num_heads", "num_attention_heads")
    width = whole(own, "linear_head_dim", "head_dim", default=128)
    wide = heads * width
    full = "fg" if str(c.get("model_type", "")).startswith("bailing") else "g" if own.get("use_full_rank_gate") else ""
    gates = tuple(
        m
        for n in "fg"
        for m in (
            (_matrix(f"{n}_proj", h, wide),)
            if n in full
            else (_matrix(f"{n}_a_proj", h, width), _matrix(f"{n}_b_proj", width, wide))
        )
    )
    linears = (
        *(_matrix(n, h, wide) for n in ("q_proj", "k_proj", "v_proj")),
        *gates,
        _matrix("b_proj", h, heads),
        _matrix("o_proj", wide, h),
    )
    kernel = whole(own, "linear_conv_kernel_dim", "short_conv_kernel_size", default=4)
    return linears, 3 * wide * kernel + heads + wide + width


def _lightning(c: Config, h: int) -> Mixed:
    """Lightning attention of MiniMax-01 (arXiv 2501.08313)."""
    heads = whole(c, "num_attention_heads", default=1)
    wide = heads * (whole(c, "head_dim") or h // heads)
    return (
        _matrix("qkv_proj", h, 3 * wide),
        _matrix("out_proj", wide, h),
        _matrix("output_gate", h, wide),
    ), wide


def _conv(c: Config, h: int) -> Mixed:
    """Gated short convolution of LFM2."""
    bias = bool(c.get("conv_bias"))
    linears = (_matrix("in_proj", h, 3 * h, bias), _matrix("out_proj", h, h, bias))
    return linears, h * (whole(c, "conv_L_cache", default=3) + bias)


def _rglru(c: Config, h: int) -> Mixed:
    """Real-gated linear recurrence of Griffin (arXiv 2402.19427); gates are block diagonal, a block per head."""
    wide = whole(c, "lru_width", default=h)
    heads = whole(c, "num_attention_heads", default=1)
    gates = 2 * (wide * wide // heads + wide)
    linears = (
        _matrix("linear_y", h, wide, True),
        _matrix("linear_x", h, wide, True),
        _matrix("linear_out", wide, h, True),
    )
    return linears, wide * (whole(c, "conv1d_width", default=4) + 1) + wide + gates


def _compressed(c: Config, h: int) -> Mixed:
    """DeepSeek-V4's attention on one shared key/value head, without what a layer's compressor adds."""
    heads, width, rank = whole(c, "num_attention_heads"), whole(c, "head_dim"), whole(c, "q_lora_rank")
    groups, out_rank, streams = whole(c, "o_groups", default=8), whole(c, "o_lora_rank"), whole(c, "hc_mult", default=4)
    linears = (
        _matrix("q_a_proj", h, rank),
        _matrix("q_b_proj", rank, heads * width),
        _matrix("kv_proj", h, width),
        Linear("o_a_proj", heads * width // groups, groups * out_rank, module=False, part="mixer"),
        _matrix("o_b_proj", groups * out_rank, h),
    )
    mixes = (2 + streams) * streams
    return linears, heads + rank + width + 2 * (mixes * streams * h + mixes + 3)


def _heavy(c: Config, h: int) -> Mixed:
    linears, rest = _compressed(c, h)
    width = whole(c, "head_dim")
    rate = whole(c.get("compress_rates") or {}, "heavily_compressed_attention", default=128)
    return (*linears, _matrix("kv_proj", h, width), _matrix("gate_proj", h, width)), rest + width * (1 + rate)


def _sparse(c: Config, h: int) -> Mixed:
    linears, rest = _compressed(c, h)
    width, small, heads = whole(c, "head_dim"), whole(c, "index_head_dim"), whole(c, "index_n_heads")
    rate = whole(c.get("compress_rates") or {}, "compressed_sparse_attention", default=4)
    more = (
        _matrix("kv_proj", h, 2 * width),
        _matrix("gate_proj", h, 2 * width),
        _matrix("indexer.kv_proj", h, 2 * small),
        _matrix("indexer.gate_proj", h, 2 * small),
        _matrix("indexer.q_b_proj", whole(c, "q_lora_rank"), heads * small),
        _matrix("indexer.weights_proj", h, heads),
    )
    return (*linears, *more), rest + width + small + 2 * rate * (width + small)


MIXERS: Final[Mapping[str, Callable[[Config, int], Mixed]]] = {
    "conv": _conv,
    "csa": _sparse,
    "hca": _heavy,
    "sca": _compressed,
    "delta": _delta,
    "kda": _kda,
    "lightning": _lightning,
    "mamba": _mamba,
    "mamba2": _mamba2,
    "rglru": _rglru,
}
"""By kind of mixer: its matrices and its other parameters, for a configuration and a hidden size."""


def _delta_sizes(c: Config, length: int) -> Sizes:
    key_heads, heads, key, value, _ = _delta_of(c)
    padded = _padded(length, _DELTA_CHUNK)
    wide = heads * key
    return {
        "keys": key_heads * key,
        "values": heads * value,
        "valuesp": heads * value * padded,
        "plain": 0 if heads > key_heads else wide,
        "plainp": 0 if heads > key_heads else wide * padded,
        "repeated": wide if heads > key_heads else 0,
        "repeatedp": wide * padded if heads > key_heads else 0,
        "chunk": heads * _DELTA_CHUNK * padded,
        "state": wide * value / _DELTA_CHUNK * padded,
    }


def _mamba2_sizes(c: Config, length: int) -> Sizes:
    heads, inner, groups, state, _ = _duality(c, whole(c, "hidden_size"))
    chunk = whole(c, "mamba_chunk_size", "chunk_size", default=256)
    padded = _padded(length, chunk)
    return {
        "inner": inner,
        "innerp": inner * padded,
        "grouped": groups * state,
        "repeated": heads * state,
        "repeatedp": heads * state * padded,
        "chunk": heads * chunk * padded,
        "state": inner * state / chunk * padded,
    }


def _padded(length: int, chunk: int) -> float:
    """How much longer a sequence is once it is cut into chunks."""
    return -(-length // chunk) * chunk / length


def _mamba_sizes(c: Config, length: int) -> Sizes:
    inner = whole(c, "mamba_expand", "expand", default=2) * whole(c, "hidden_size")
    return {"inner": inner, "states": inner * whole(c, "mamba_d_state", "state_size", default=16)}


def _conv_sizes(c: Config, length: int) -> Sizes:
    return {"hidden": whole(c, "hidden_size")}


SIZES: Final[Mapping[str, Callable[[Config, int], Sizes]]] = {
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "olmo_hybrid"), _delta_sizes),
    **dict.fromkeys(("granitemoehybrid", "bamba", "falcon_h1", "nemotron_h", "mamba2"), _mamba2_sizes),
    **dict.fromkeys(("mamba", "falcon_mamba", "jamba"), _mamba_sizes),
    **dict.fromkeys(("lfm2", "lfm2_moe"), _conv_sizes),
}
"""By family whose mixer was traced: elements per token of what it holds between its projections, for a length.

Sizes that end in ``p`` are those of sequences padded to whole chunks.
"""


def _delta_state(c: Config, h: int) -> float:
    """A key x value matrix per value head, and the last inputs of the convolution."""
    key_heads, heads, key, value, kernel = _delta_of(c)
    return heads * key * value + (2 * key_heads * key + heads * value) * (kernel - 1)


def _mamba2_state(c: Config, h: int) -> float:
    """Inner width x state, and the convolution's inputs."""
    _, inner, groups, state, kernel = _duality(c, h)
    return inner * state + (inner + 2 * groups * state) * (kernel - 1)


def _mamba_state(c: Config, h: int) -> float:
    inner = whole(c, "mamba_expand", "expand", default=2) * h
    return inner * (whole(c, "mamba_d_state", "state_size", default=16) + whole(c, "mamba_d_conv", default=4) - 1)


def _square_state(c: Config, h: int) -> float:
    """Linear attention: a square matrix per head."""
    size = whole(c, "head_dim") or 128
    return (whole(c, "num_attention_heads") or h // size) * size * size


STATES: Final[Mapping[str, Callable[[Config, int], float]]] = {
    **dict.fromkeys(("kda", "lightning"), _square_state),
    "delta": _delta_state,
    "mamba": _mamba_state,
    "mamba2": _mamba2_state,
}
"""By kind of recurrent mixer: elements that it keeps of a sequence, for a configuration and a hidden size."""
