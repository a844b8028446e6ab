"""A model described by its sizes (Megatron and NeMo): flags to a configuration in the form of a ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Reading, View
from oomdoc.intake.configs.values import flag, whole

__all__ = ["ARCHITECTURE_KEYS", "described_model", "described_pair"]

_SIZES: Final[Mapping[str, str]] = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "ffn_hidden_size": "intermediate_size",
    "num_query_groups": "num_key_value_heads",
    "kv_channels": "head_dim",
    "vocab_size": "vocab_size",
    "padded_vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
    "num_experts": "num_local_experts",
    "num_moe_experts": "num_local_experts",
    "moe_router_topk": "num_experts_per_tok",
    "moe_ffn_hidden_size": "moe_intermediate_size",
}
ARCHITECTURE_KEYS: Final = frozenset(_SIZES)
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

    def entry(name: str) -> Any:
        return view.get(name) or view.get(f"model.{name}")

    if any(entry(n) is None for n in ("num_layers", "hidden_size", "num_attention_heads")):
        return None
    config: dict[str, Any] = {"model_type": "llama"}
    for name, target in _SIZES.items():
        found = entry(name)
        value = whole(found.value) if found is not None and found.resolved else None
        if value is not None and value > 0:
            config[target] = value
    if not {"num_hidden_layers", "hidden_size", "num_attention_heads"} <= config.keys():
        return None
    gated = _gated(view)
    config.setdefault("vocab_size", _vocabulary(view))
    config.setdefault("intermediate_size", config["hidden_size"] * 4)
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config["tie_word_embeddings"] = not flag(view.value("untie_embeddings_and_output_weights") or False)
    if not gated and "num_local_experts" not in config:
        config |= {"model_type": "gpt_neox", "hidden_act": "gelu"}
    elif "num_local_experts" in config:
        config["model_type"] = "mixtral"
        config.setdefault("num_experts_per_tok", 2)
    return "model_config", config, entry("hidden_size")


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


def _gated(view: View) -> bool:
    activation = str(view.value("activation", "model.activation") or "")
    return bool(flag(view.value("swiglu") or False)) or "glu" in activation
