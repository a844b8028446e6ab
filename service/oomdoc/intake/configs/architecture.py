"""A model described by its sizes (Megatron and NeMo): flags to a configuration in the form of a ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Reading, View
from oomdoc.intake.configs.values import flag, whole

__all__ = ["described_model", "described_pair"]

_SIZES: Final[Mapping[str, tuple[str, ...]]] = {
    "num_hidden_layers": ("num_layers", "num_hidden_layers", "n_layers", "n_layer"),
    "hidden_size": ("hidden_size", "d_model", "n_embd", "hidden_width"),
    "num_attention_heads": ("num_attention_heads", "n_heads", "n_head", "num_heads"),
    "intermediate_size": ("ffn_hidden_size", "intermediate_size", "mlp_hidden_size"),
    "num_key_value_heads": ("num_query_groups", "num_key_value_heads", "n_kv_heads"),
    "head_dim": ("kv_channels",),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "max_position_embeddings": ("max_position_embeddings", "max_sequence_length"),
    "num_local_experts": ("num_experts", "num_moe_experts"),
    "num_experts_per_tok": ("moe_router_topk",),
    "moe_intermediate_size": ("moe_ffn_hidden_size",),
}
"""What a configuration in the form of a ``config.json`` calls a size, and what frameworks call it."""
_WITHIN: Final = ("", "model.", "model.model_config.")
_NEEDED: Final = ("num_hidden_layers", "hidden_size", "num_attention_heads")
# Sizes of the vocabularies of tokenizers named by kind, rounded up as Megatron pads them (multiples of 128).
_VOCABULARIES: Final = (
    ("gpt2", 50_304),
    ("llama3", 128_256),
    ("llama2", 32_000),
    ("tiktoken", 131_072),
    ("sentencepiece", 32_000),
    ("bert", 30_592),
)


def _vocabulary(view: View) -> int:
    kind = str(view.value("tokenizer_type", "model.tokenizer.type", "model.tokenizer.library") or "").lower()
    return next((n for word, n in _VOCABULARIES if word in kind), 50_304)


def described_model(view: View) -> Reading | None:
    """The model that sizes describe: (``model_config``, configuration, the entry of the hidden size)."""

    def entry(*names: str) -> Entry | None:
        return next((view[key] for name in names for key in (w + name for w in _WITHIN) if key in view), None)

    def said(*names: str) -> bool | None:
        found = entry(*names)
        return flag(found.value) if found is not None else None

    if any(entry(*_SIZES[size]) is None for size in _NEEDED):
        return None
    config: dict[str, Any] = {"model_type": "llama"}
    for size, names in _SIZES.items():
        found = entry(*names)
        value = whole(found.value) if found is not None and found.resolved else None
        if value is not None and value > 0:
            config[size] = value
    width = entry(*_SIZES["hidden_size"])
    if not config.keys() >= set(_NEEDED) or width is None:
        return None
    activation = entry("activation", "activation_type", "hidden_act")
    kind = str(activation.value if activation is not None else "").lower()
    gated = bool(said("swiglu")) or "glu" in kind or kind == "silu"
    multiple = entry("mlp_multiple_of")
    if gated and multiple is not None and (step := whole(multiple.value)) and "intermediate_size" in config:
        third = -(-config["intermediate_size"] // 3)  # GPT-NeoX states the three matrices' width together
        config["intermediate_size"] = -(-third // step) * step
    config.setdefault("vocab_size", _vocabulary(view))
    config.setdefault("intermediate_size", config["hidden_size"] * 4)
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    tied = said("tie_word_embeddings", "weight_tying")
    untied = said("untie_embeddings_and_output_weights", "no_weight_tying")
    config["tie_word_embeddings"] = tied if tied is not None else not untied
    if not gated and "num_local_experts" not in config:
        config |= {"model_type": "gpt_neox", "hidden_act": "gelu"}
    elif "num_local_experts" in config:
        config["model_type"] = "mixtral"
        config.setdefault("num_experts_per_tok", 2)
    return "model_config", config, width


_HALF: Final = re.compile(r"(?:model\.)?(?:encoder|decoder)\.\w{1,60}\Z")
_PAIR_SIZES: Final[Mapping[str, str]] = {
    "num_layers": "num_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "ffn_hidden_size": "d_ff",
    "kv_channels": "d_kv",
}


def described_pair(entries: Iterable[Entry], view: View) -> Reading | None:
    """An encoder and a decoder, each with sizes of its own (T5, BART and UL2 in Megatron and NeMo).

    :param entries: the settings under their own keys, of which those of the two halves differ in the middle only.
    """
    halves = {e.key.removeprefix("model."): e for e in entries if _HALF.match(e.key) and e.resolved}
    config: dict[str, Any] = {"model_type": "t5"}
    for name, target in _PAIR_SIZES.items():
        found = halves.get(f"encoder.{name}")
        value = whole(found.value) if found is not None else None
        if value is not None and value > 0:
            config[target] = value
    decoder = whole(halves["decoder.num_layers"].value) if "decoder.num_layers" in halves else None
    if not {"num_layers", "d_model", "num_heads"} <= config.keys() or decoder is None or decoder <= 0:
        return None
    config.setdefault("d_kv", config["d_model"] // config["num_heads"])
    config.setdefault("d_ff", 4 * config["d_model"])
    activation = halves.get("encoder.activation")
    config |= {
        "num_decoder_layers": decoder,
        "vocab_size": _vocabulary(view),
        "feed_forward_proj": "gated-gelu" if activation is not None and "glu" in str(activation.value) else "gelu",
        "tie_word_embeddings": flag(view.value("model.share_decoder_tokens_head_embeddings")) is not False,
    }
    return "model_config", config, halves["encoder.hidden_size"]
