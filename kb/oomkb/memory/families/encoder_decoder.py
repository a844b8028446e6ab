"""Encoder-decoder models as one row of layers: the encoder's, then the decoder's with a second attention.

Read from transformers 5.23: ``t5``, ``mt5``, ``umt5``, ``bart``, ``mbart``, ``pegasus``, ``marian``, ``blenderbot``,
``m2m_100``, ``whisper`` and their kin, which all spell their sizes in one of these two ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
_T5 = frozenset({"t5", "mt5", "umt5", "longt5", "pop2piano", "switch_transformers"})
_WITH_EMBED_NORM = frozenset({"bart", "mbart", "blenderbot-small", "plbart", "mvp", "led"})
_FINAL_NORMS = frozenset(
    {"mbart", "pegasus", "m2m_100", "blenderbot", "whisper", "nllb-moe", "pegasus_x", "speech_to_text"}
)
_TWO_SPARE_ROWS = frozenset({"bart", "mbart", "plbart", "mvp"})


def is_pair(kind: str, c: Config) -> bool:
    """Whether the configuration is an encoder-decoder's."""
    return kind in _T5 or bool(c.get("encoder_layers") and c.get("decoder_layers"))


def pair_config(kind: str, c: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration in the decoder's words, and the fields of Dims that the pair adds."""
    if kind in _T5:
        return _t5(c)
    encoder, decoder = int(c["encoder_layers"]), int(c["decoder_layers"])
    heads = int(c.get("decoder_attention_heads") or c.get("encoder_attention_heads") or 8)
    width = int(c.get("d_model") or c.get("hidden_size") or 0)
    ffn = int(c.get("decoder_ffn_dim") or 4 * width)
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": encoder + decoder,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "intermediate_size": ffn,
        "max_position_embeddings": c.get("max_position_embeddings") or c.get("max_target_positions") or 1024,
    }
    changes = {"ffn": int(c.get("encoder_ffn_dim") or ffn), "heads": int(c.get("encoder_attention_heads") or heads)}
    if width and heads:
        changes |= {"kv_heads": changes["heads"], "head_dim": width // changes["heads"]}
    return {**c, **sizes}, {"encoder_layers": encoder, "encoder_changes": tuple(changes.items())}


def _t5(c: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    encoder = int(c.get("num_layers") or c.get("num_hidden_layers") or 6)
    decoder = int(c.get("num_decoder_layers") or encoder)
    heads = int(c.get("num_heads") or c.get("num_attention_heads") or 8)
    sizes = {
        "num_hidden_layers": encoder + decoder,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": int(c.get("d_kv") or 64),
        "intermediate_size": int(c.get("d_ff") or 2048),
    }
    merged = {k: v for k, v in c.items() if k not in ("num_layers", "num_heads")}
    plain = not str(c.get("feed_forward_proj") or "relu").startswith("gated")
    return {**merged, **sizes}, {"encoder_layers": encoder, "plain_mlp": plain}


def pair_extra(kind: str, c: Config, hidden: int, heads: int) -> int:
    """Parameters beside layers, one final norm and the token embedding."""
    if kind in _T5:
        buckets = int(c.get("relative_attention_num_buckets") or 32) * heads
        both = int(c["num_hidden_layers"]) if kind == "umt5" else 2  # uMT5 has its own table in every layer
        return buckets * both + hidden
    norm = 2 * hidden
    extra = norm if kind in _FINAL_NORMS else 0
    if kind in _WITH_EMBED_NORM:
        extra += 2 * norm
    rows = int(c.get("max_position_embeddings") or 0)
    if kind == "whisper":
        mels = int(c.get("num_mel_bins") or 80)
        rows = int(c.get("max_target_positions") or 448) + int(c.get("max_source_positions") or 1500)
        return extra + rows * hidden + 3 * hidden * (mels + hidden) + norm
    if kind == "led":
        rows = int(c.get("max_encoder_position_embeddings") or 16384) + int(
            c.get("max_decoder_position_embeddings") or 1024
        )
        return extra + rows * hidden
    spare = 2 if kind in _TWO_SPARE_ROWS else 0
    tables = 0 if kind in ("m2m_100", "nllb-moe", "fsmt", "speech_to_text") else 2
    return extra + (0 if kind == "pegasus_x" else tables * (rows + spare) * hidden)
