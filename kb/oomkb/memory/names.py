"""What the keys, activations and types of a ``config.json`` are called, family by family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["ACTS", "NAMES", "TEXT_TYPES", "of", "text_config", "unread_parts"]

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim", "n_embed", "dim_model", "embed_dim", "emb_dim"),
    "layers": (
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "decoder_layers",
        "layers",
        "decoder_num_hidden_layers",
        "num_decoder_layers",
    ),
    "heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "attention_heads",
        "decoder_attention_heads",
        "decoder_num_attention_heads",
        "num_decoder_attention_heads",
    ),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "multi_query_group_num", "num_kv_heads", "n_kv_heads"),
    "ffn": (
        "intermediate_size",
        "ffn_dim",
        "n_inner",
        "ffn_hidden_size",
        "d_ff",
        "intermediate_dim",
        "decoder_ffn_dim",
        "inner_hidden_size",
        "hidden_dim",
        "block_ff_dim",
        "dff",
    ),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "act": ("hidden_act", "hidden_activation", "activation_function", "activation"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "top_k": ("num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token", "top_k_experts"),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "dropout": ("resid_pdrop", "hidden_dropout", "residual_dropout", "dropout"),
    "attention_dropout": ("attn_pdrop", "attention_dropout"),
    "embed_dropout": ("embd_pdrop", "embedding_dropout"),
}
ACTS: Final[Mapping[str, str]] = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_new",
    "swiglu": "silu",
    "swish": "silu",
    "squared_relu": "relu2",
}
_TEXT_KEYS: Final = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "decoder",
    "vlm_config",
    "decoder_config",
)
# Vision-language wrappers and remote-code names, by the decoder inside.
TEXT_TYPES: Final[Mapping[str, str]] = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_audio": "qwen2",
    "qwen2_5_omni": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "gemma3": "gemma3_text",
    "glm4v": "glm4",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "llama4": "llama4_text",
    "mllama": "llama",
    "mllama_text_model": "llama",
    "ernie4_5_vl_moe_text": "ernie4_5_moe",
    "refinedwebmodel": "falcon",
    "codellama": "llama",
    "yi": "llama",
    "aquila": "llama",
    "deepseek": "deepseek_v2",
    "kimi_k2": "deepseek_v3",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "refinedweb": "falcon",
    "bailing_moe_v2_5": "bailing_hybrid",
    "phi-msft": "phi",
    "stablelm_epoch": "stablelm",
    "minicpm": "llama",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
    "minicpmv": "qwen2",
    "xverse": "llama",
    "orion": "llama",
    "telechat": "llama",
    "hunyuan": "hunyuan_v1_dense",
}


def of(config: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value of a dimension under the first of its spellings that is given."""
    for key in NAMES.get(name, (name,)):
        value = config.get(key)
        if value is not None:
            return value
    return default


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The decoder's own part of a (possibly multimodal) configuration."""
    for key in _TEXT_KEYS:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            nested = text_config(inner)
            merged = {**nested}
            for shared in ("vocab_size", "tie_word_embeddings"):
                if shared not in merged and shared in config:
                    merged[shared] = config[shared]
            if isinstance(config.get("tie_word_embeddings"), bool):  # the head belongs to the whole model
                merged["tie_word_embeddings"] = config["tie_word_embeddings"]
            merged.setdefault("model_type", config.get("model_type", ""))
            return merged
    return config


_READ: Final = ("vision_config", "visual", "vision_tower_config", "vit_config", "audio_config", "perceiver_config")


def unread_parts(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of whole sub-models in a composed configuration that are neither its decoder nor a tower that is read."""
    used = {next((k for k in _TEXT_KEYS if isinstance(config.get(k), Mapping)), ""), *_READ}
    sizes = (*NAMES["hidden"], "vocab_size")
    return tuple(
        sorted(
            k for k, v in config.items() if isinstance(v, Mapping) and k not in used and any(v.get(s) for s in sizes)
        )
    )
