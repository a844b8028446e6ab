"""What tells one decoder family from another: norms, biases, module names, residual order.

One row per ``model_type`` of a Hugging Face ``config.json``. Each row was read from the family's modelling file in
transformers 5.23 (or, for ``qwen``, ``baichuan``, ``internlm``, ``internlm2`` and ``chatglm``, from the code that the
checkpoints carry). A family that is not listed is treated as a Llama-like decoder, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oomkb.memory.families.rarer import RARER
from oomkb.memory.families.row import Family

__all__ = ["FAMILIES", "UNKNOWN", "Family"]


_LLAMA: Final = Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
_FUSED_MLP: Final = ("gate_up_proj", "gate_up_proj", "down_proj")
_GPT2: Final = Family(
    softmax="input",
    norm="ln",
    gated=False,
    act="gelu_new",
    qkv="fused",
    names=("c_attn", "c_attn", "c_attn", "c_proj", "", "c_fc", "c_proj"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    positions="learned",
    tied=True,
    dropout=0.1,
    attention_dropout=0.1,
    embed_dropout=0.1,
)
_GEMMA: Final = Family(
    norm="rms-gemma",
    act="gelu_tanh",
    tied=True,
    scaled_embed=True,
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    defaults={"head_dim": 256},
)
_GEMMA2: Final = replace(
    _GEMMA,
    norms=4,
    post_norms="sandwich",
    eager=True,
    defaults={
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
)
_GEMMA3: Final = replace(
    _GEMMA2,
    eager=False,
    qk_norm="head",
    defaults={"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 6},
)
_QWEN2: Final = Family(qkv_bias=True)
_QWEN3: Final = replace(_LLAMA, qk_norm="head", defaults={"head_dim": 128}, mlp_bias=False)
_PHI3: Final = Family(
    qkv="fused", gate_up="fused", names=("qkv_proj", "qkv_proj", "qkv_proj", "o_proj", *_FUSED_MLP), defaults={}
)
_NEOX: Final = Family(
    norm="ln",
    gated=False,
    act="gelu",
    qkv="fused",
    names=("query_key_value", "query_key_value", "query_key_value", "dense", "", "dense_h_to_4h", "dense_4h_to_h"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
)
_OLMO2: Final = Family(
    norm="rms-wide",
    post_norms="only",
    qk_norm="full",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    wide_rotary=True,
)
_COHERE: Final = Family(
    norm="ln-fp32",
    norms=1,
    parallel=True,
    tied=True,
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    qk_norm="use_qk_norm",
)
_MIXTRAL: Final = Family(experts="fused")
_QWEN1: Final = Family(
    qkv="fused", names=("c_attn", "c_attn", "c_attn", "c_proj", "w2", "w1", "c_proj"), qkv_bias=True, defaults={}
)
_BAICHUAN: Final = Family(
    qkv="fused", names=("W_pack", "W_pack", "W_pack", "o_proj", "gate_proj", "up_proj", "down_proj")
)
_GLM: Final = Family(
    qkv_bias=True,
    gate_up="fused",
    names=("q_proj", "k_proj", "v_proj", "o_proj", *_FUSED_MLP),
    rotary_fraction=0.5,
    defaults={"head_dim": 128, "attention_bias": True},
)
_DEEPSEEK: Final = Family(experts="fused", qkv_bias="attention_bias", o_bias="attention_bias")

_VIT: Final = Family(
    norm="ln",
    gated=False,
    act="gelu_tanh",
    names=("q_proj", "k_proj", "v_proj", "out_proj", "", "fc1", "fc2"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    positions="none",
    tied=True,
)
_VIT_FUSED: Final = replace(
    _VIT,
    qkv="fused",
    names=("qkv", "qkv", "qkv", "proj", "", "linear_fc1", "linear_fc2"),
    positions="rope",
    wide_rotary=True,
)
_TOWERS: Final[Mapping[str, Family]] = {
    "vit-clip": replace(_VIT, act="quick_gelu"),
    "vit-intern": replace(_VIT, act="gelu"),
    "vit-qwen2": replace(_VIT_FUSED, act="quick_gelu", names=("qkv", "qkv", "qkv", "proj", "", "fc1", "fc2")),
    "vit-qwen2.5": replace(
        _VIT_FUSED,
        norm="rms",
        gated=True,
        act="silu",
        names=("qkv", "qkv", "qkv", "proj", "gate_proj", "up_proj", "down_proj"),
    ),
    "vit-qwen3": _VIT_FUSED,
    "vit-siglip": _VIT,
}
"""Layers of vision towers (:mod:`oomkb.memory.images`)."""

UNKNOWN: Final = _LLAMA

FAMILIES: Final[Mapping[str, Family]] = {
    **RARER,
    **_TOWERS,
    "apertus": replace(_LLAMA, gated=False, act="xielu", qk_norm="head", mlp_bias=False),
    "arcee": replace(_LLAMA, gated=False, act="relu2"),
    "baichuan": _BAICHUAN,
    "bloom": replace(_NEOX, positions="alibi", tied=True, act="gelu_bloom", embed_norm=True),
    "chatglm": Family(
        qkv="fused",
        gate_up="fused",
        names=("query_key_value",) * 3 + ("dense", "dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h"),
        qkv_bias="add_qkv_bias",
        o_bias="add_bias_linear",
        mlp_bias="add_bias_linear",
        rotary_fraction=0.5,
        defaults={"add_qkv_bias": True},
    ),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, qk_norm=False, defaults={"sliding_window": 4096, "sliding_window_pattern": 4}),
    "dbrx": Family(
        norm="ln-nobias", qkv="fused", names=("Wqkv", "Wqkv", "Wqkv", "out_proj", "w1", "v1", "w2"), experts="fused"
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": replace(_DEEPSEEK, router_bias=True),
    "dots1": replace(_DEEPSEEK, qk_norm="head", router_bias=True),
    "ernie4_5": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", tied=True),
    "ernie4_5_moe": Family(
        qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", tied=True, experts="fused", router_bias=True
    ),
    "exaone4": Family(post_norms="only", qk_norm="head"),
    "falcon": replace(
        _NEOX,
        softmax="input",
        qkv_bias="bias",
        o_bias="bias",
        mlp_bias="bias",
        norms=1,
        parallel="parallel_attn",
        tied=True,
        defaults={"parallel_attn": True, "multi_query": True, "num_kv_heads": None},
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "glm": _GLM,
    "glm4": replace(_GLM, norms=4, post_norms="sandwich"),
    "glm4_moe": replace(
        _DEEPSEEK, qkv_bias="attention_bias", o_bias=False, qk_norm="use_qk_norm", router_bias=True, rotary_fraction=0.5
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, softmax="fp32", act="gelu_tanh", defaults={"num_key_value_heads": 1}),
    "gpt_neo": replace(
        _GPT2,
        qkv="split",
        qkv_bias=False,
        names=("q_proj", "k_proj", "v_proj", "out_proj", "", "c_fc", "c_proj"),
        dropout=0.0,
        attention_dropout=0.0,
        embed_dropout=0.0,
    ),
    "gpt_neox": replace(
        _NEOX, parallel="use_parallel_residual", rotary_fraction=0.25, defaults={"use_parallel_residual": True}
    ),
    "gpt_oss": Family(
        softmax="sinks",
        qkv_bias=True,
        o_bias=True,
        eager=True,
        experts="fused",
        router_bias=True,
        expert_bias=True,
        defaults={"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2, "num_key_value_heads": 8},
    ),
    "gptj": Family(
        softmax="scores",
        norm="ln",
        norms=1,
        gated=False,
        act="gelu_new",
        names=("q_proj", "k_proj", "v_proj", "out_proj", "", "fc_in", "fc_out"),
        mlp_bias=True,
        head_bias=True,
        parallel=True,
        rotary_fraction=0.25,
    ),
    "granite": _LLAMA,
    "granitemoe": replace(_LLAMA, experts="fused"),
    "granitemoeshared": replace(_LLAMA, experts="fused"),
    "hunyuan_v1_dense": replace(_LLAMA, qk_norm="head", mlp_bias=False),
    "hunyuan_v1_moe": replace(_LLAMA, qk_norm="head", mlp_bias=False, experts="fused"),
    "internlm": Family(qkv_bias="bias", o_bias="bias", defaults={"bias": True}),
    "internlm2": Family(
        qkv="fused", names=("wqkv", "wqkv", "wqkv", "wo", "w1", "w3", "w2"), qkv_bias="bias", o_bias="bias"
    ),
    "internlm3": Family(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
    "llama": _LLAMA,
    "llama4_text": replace(_LLAMA, experts="fused", mlp_bias=False),
    "minimax": Family(experts="fused"),
    "ministral": Family(),
    "ministral3": Family(),
    "mistral": Family(),
    "mixtral": _MIXTRAL,
    "mpt": Family(
        norm="ln-nobias",
        gated=False,
        act="gelu",
        qkv="fused",
        names=("Wqkv", "Wqkv", "Wqkv", "out_proj", "", "up_proj", "down_proj"),
        positions="alibi",
        tied=True,
    ),
    "nemotron": replace(_LLAMA, norm="ln", gated=False, act="relu2", rotary_fraction=0.5),
    "olmo": replace(_LLAMA, norm="ln-plain", mlp_bias=False, wide_rotary=True),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, defaults={"sliding_window": 4096, "sliding_window_pattern": 4}),
    "olmoe": replace(_LLAMA, qk_norm="full", experts="fused", mlp_bias=False),
    "opt": Family(
        lean_mask=True,
        defaults={"max_position_embeddings": 2048},
        norm="ln",
        gated=False,
        act="relu",
        names=("q_proj", "k_proj", "v_proj", "out_proj", "", "fc1", "fc2"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        positions="learned",
        tied=True,
        dropout=0.1,
    ),
    "persimmon": replace(_NEOX, act="relu2", qk_norm="head", rotary_fraction=0.5),
    "phi": Family(
        norm="ln",
        norms=1,
        gated=False,
        act="gelu_new",
        names=("q_proj", "k_proj", "v_proj", "dense", "", "fc1", "fc2"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        head_bias=True,
        parallel=True,
        rotary_fraction=0.5,
    ),
    "phi3": _PHI3,
    "phi3_v": _PHI3,
    "phi4_multimodal": _PHI3,
    "phi4mm": _PHI3,
    "phimoe": Family(norm="ln", qkv_bias="attention_bias", o_bias="attention_bias", experts="fused"),
    "qwen": _QWEN1,
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, experts="fused", shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, experts="fused", defaults={}),
    "seed_oss": replace(
        _LLAMA,
        qkv_bias="attention_bias",
        o_bias="attention_out_bias",
        dropout=0.1,
        attention_dropout=0.1,
        defaults={"attention_bias": True, "head_dim": 128},
    ),
    "smollm3": replace(_LLAMA, tied=True),
    "stablelm": Family(
        norm="ln",
        qkv_bias="use_qkv_bias",
        parallel="use_parallel_residual",
        rotary_fraction=0.25,
        qk_norm="qk_layernorm",
    ),
    "starcoder2": Family(
        norm="ln",
        gated=False,
        act="gelu_tanh",
        names=("q_proj", "k_proj", "v_proj", "o_proj", "", "c_fc", "c_proj"),
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        tied=True,
        defaults={"use_bias": True},
    ),
}
