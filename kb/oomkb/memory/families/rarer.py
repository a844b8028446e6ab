"""Families beside the usual decoders: hybrids, encoders, encoder-decoders and rarer decoders.

Rows as in :mod:`oomkb.memory.families.decoders`, read from transformers 5.23. A family that differs from Llama in
nothing that a configuration does not say is in :data:`_LIKE_LLAMA`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oomkb.memory.families.row import Family

__all__ = ["RARER"]

_LLAMA: Final = Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
_MOE: Final = replace(_LLAMA, experts="fused")
_PLAIN: Final = ("q_proj", "k_proj", "v_proj", "out_proj", "", "fc1", "fc2")
_GEMMA: Final = Family(
    norm="rms-gemma",
    act="gelu_tanh",
    tied=True,
    scaled_embed=True,
    norms=4,
    post_norms="sandwich",
    qk_norm="head",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
)
_BERT: Final = Family(
    norm="ln",
    gated=False,
    act="gelu",
    names=("query", "key", "value", "dense", "", "dense", "dense"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    positions="learned",
    tied=True,
    embed_norm=True,
    final_norm=False,
    dropout=0.1,
    attention_dropout=0.1,
    embed_dropout=0.1,
)
_BART: Final = Family(
    norm="ln",
    gated=False,
    act="gelu",
    names=_PLAIN,
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    tied=True,
    final_norm=False,
    positions="none",
    dropout=0.1,
)
_T5: Final = Family(
    names=("q", "k", "v", "o", "wi_0", "wi_1", "wo"), act="relu", positions="none", tied=True, dropout=0.1
)
_DELTA: Final = replace(
    _LLAMA,
    norm="rms-gemma",
    mlp_bias=False,
    qk_norm="head",
    gate="query",
    defaults={
        "head_dim": 256,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "full_attention_interval": 4,
    },
)
_DELTA_MOE: Final = replace(_DELTA, experts="fused", shared_gate=True)
_MAMBA: Final = Family(
    names=("in_proj", "in_proj", "in_proj", "out_proj", "gate_proj", "up_proj", "down_proj"), norms=1
)
_LATENT: Final = replace(_MOE, mlp_bias=False, router_bias=True)
_LIKE_LLAMA: Final = ("bitnet", "cwm", "helium", "hyperclovax", "iquestcoder", "mellum", "solar_open", "youtu")
_ENCODERS: Final = ("bert", "roberta", "xlm-roberta", "camembert", "ernie", "data2vec-text")
_PAIRS: Final = ("bart", "mbart", "pegasus", "marian", "blenderbot", "blenderbot-small", "m2m_100", "plbart", "mvp")

RARER: Final[Mapping[str, Family]] = {
    **dict.fromkeys(_LIKE_LLAMA, _LLAMA),
    **dict.fromkeys(_ENCODERS, _BERT),
    **dict.fromkeys(_PAIRS, _BART),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5"), _T5),
    "afmoe": replace(_MOE, norms=4, post_norms="sandwich", qk_norm="head", gate="full", router_bias=True),
    "bailing_hybrid": replace(_LATENT, gate="head"),
    "bamba": replace(_LLAMA, rotary_fraction=0.5),
    "biogpt": replace(_BART, final_norm=True, positions="learned"),
    "chatglm1": replace(
        _BART,
        qkv="fused",
        names=("query_key_value",) * 3 + ("dense", "", "dense_h_to_4h", "dense_4h_to_h"),
        final_norm=True,
        positions="rope",
        rotary_fraction=0.5,
        dropout=0.0,
    ),
    "codegen": Family(
        softmax="input",
        norm="ln",
        norms=1,
        gated=False,
        act="gelu_new",
        qkv="fused",
        names=("qkv_proj",) * 3 + ("out_proj", "", "fc_in", "fc_out"),
        mlp_bias=True,
        head_bias=True,
        parallel=True,
        rotary_fraction=0.25,
    ),
    "ctrl": replace(_BART, final_norm=True, head_bias=True, names=("Wq", "Wk", "Wv", "dense", "", "0", "2")),
    "deepseek_v32": replace(_LATENT, qkv_bias="attention_bias", o_bias="attention_bias"),
    "deepseek_v4": replace(_LATENT, gated=True),
    "diffllama": _LLAMA,
    "doge": replace(_MOE, qk_norm="head"),
    "exaone": Family(names=("q_proj", "k_proj", "v_proj", "out_proj", "c_fc_0", "c_fc_1", "c_proj")),
    "falcon_h1": _LLAMA,
    "falcon_mamba": _MAMBA,
    "flex_olmo": replace(_MOE, norms=2, post_norms="only", qk_norm="full"),
    "gemma3n_text": replace(
        _GEMMA,
        defaults={"hidden_size_per_layer_input": 256, "altup_num_inputs": 4, "laurel_rank": 64, "head_dim": 256},
    ),
    "gemma4_text": replace(_GEMMA, experts="fused", defaults={"head_dim": 256, "global_head_dim": 512}),
    "gemma4_unified_text": replace(_GEMMA, experts="fused", defaults={"head_dim": 256, "global_head_dim": 512}),
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": _LATENT,
    "gpt_neox_japanese": Family(
        norm="ln",
        gated=False,
        act="gelu",
        qkv="fused",
        names=("query_key_value",) * 3 + ("dense", "", "dense_h_to_4h", "dense_4h_to_h"),
        tied=True,
    ),
    "granitemoehybrid": replace(_LLAMA, experts="fused"),
    "hy_v3": replace(_MOE, qk_norm="head"),
    "jais2": replace(_LLAMA, norm="ln", gated=False, act="relu2"),
    "jamba": replace(_MOE, positions="none"),
    "jetmoe": replace(_MOE, tied=True),
    "kimi_linear": replace(_LATENT, positions="none"),
    "laguna": replace(_MOE, qk_norm="head", gate="head"),
    "lfm2": replace(
        _LLAMA, qk_norm="head", tied=True, names=("q_proj", "k_proj", "v_proj", "out_proj", "w1", "w3", "w2")
    ),
    "lfm2_moe": replace(
        _MOE,
        qk_norm="head",
        tied=True,
        router_bias=True,
        names=("q_proj", "k_proj", "v_proj", "out_proj", "w1", "w3", "w2"),
    ),
    "lfm3": replace(_LLAMA, qk_norm="head", tied=True, norms=4, post_norms="sandwich"),
    "longcat_flash": _LATENT,
    "mamba": _MAMBA,
    "mamba2": _MAMBA,
    "mimo": Family(qkv_bias=True),
    "mimo_v2_flash": replace(_MOE, router_bias=True),
    "minicpm3": _LLAMA,
    "minimax_m2": replace(_MOE, qk_norm="full", router_bias=True),
    "modernbert-decoder": replace(
        _LLAMA,
        norm="ln-nobias",
        act="gelu",
        gate_up="fused",
        tied=True,
        embed_norm=True,
        names=("q_proj", "k_proj", "v_proj", "Wo", "Wi", "Wi", "Wo"),
    ),
    "nanochat": replace(
        _LLAMA, norm="ln-plain", gated=False, act="relu2", names=(*_PLAIN[:3], "o_proj", "", "fc1", "fc2")
    ),
    "nemotron_h": replace(_MOE, norms=1, gated=False, act="relu2", router_bias=True, positions="none"),
    "olmo_hybrid": replace(_LLAMA, qk_norm="full"),
    "openai-gpt": Family(
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
        final_norm=False,
        dropout=0.1,
        attention_dropout=0.1,
        embed_dropout=0.1,
    ),
    "qwen3_5_moe_text": _DELTA_MOE,
    "qwen3_5_text": _DELTA,
    "qwen3_next": _DELTA_MOE,
    "recurrent_gemma": replace(
        _GEMMA, norms=2, post_norms="none", qk_norm=False, o_bias=True, mlp_bias=True, defaults={"head_dim": 256}
    ),
    "rwkv": replace(_MAMBA, norm="ln", norms=2),
    "vaultgemma": replace(_GEMMA, norms=2, post_norms="none", qk_norm=False, defaults={"head_dim": 256}),
    "whisper": replace(_BART, no_k_bias=True, dropout=0.0),
    "xglm": replace(_BART, final_norm=True),
    "zamba": replace(_MAMBA, tied=True),
    "zamba2": replace(_MAMBA, tied=True),
}
