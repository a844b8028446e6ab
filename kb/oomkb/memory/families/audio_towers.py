"""Parameters of an audio tower and its projector (transformers 5.23).

``qwen2_audio``, ``qwen2_5_omni``, ``voxtral``, the flamingos: a Whisper encoder; ``gemma4``: a conformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KNOWN = ("qwen2_audio", "qwen2_5_omni", "voxtral", "audioflamingo", "musicflamingo", "gemma4")


def audio_known(config: Mapping[str, Any]) -> bool:
    """Whether the model has no audio tower, or one of the known layout."""
    raw, kind = config.get("audio_config"), str(config.get("model_type") or "")
    return not isinstance(raw, Mapping) or (kind.startswith(_KNOWN) and not kind.endswith("realtime"))


def audio_params(config: Mapping[str, Any], decoder: int) -> int:
    """The audio encoder beside a decoder of width ``decoder`` and what joins them; nothing where there is none."""
    raw = config.get("audio_config")
    if not isinstance(raw, Mapping):
        return 0
    kind = str(config.get("model_type") or "")
    hidden = _int(raw, "d_model", "hidden_size")
    layers = _int(raw, "encoder_layers", "num_hidden_layers")
    if not hidden or not layers:
        return 0
    if kind.startswith("gemma4"):
        return _conformer(raw, hidden, layers, decoder)
    ffn = _int(raw, "encoder_ffn_dim", "intermediate_size") or 4 * hidden
    mels = _int(raw, "num_mel_bins") or 128
    layer = 4 * hidden * hidden + 3 * hidden + 2 * hidden * ffn + ffn + hidden + 4 * hidden
    total = layers * layer + 3 * hidden * (mels + hidden) + 2 * hidden + 2 * hidden
    if "omni" in kind:  # sinusoidal positions; two learned tokens around the sound
        return total + 2 * decoder + hidden * decoder + decoder
    total += (_int(raw, "max_source_positions") or 1500) * hidden
    if kind == "voxtral":  # four frames are joined before two layers without biases
        return total + ffn * decoder + decoder * decoder
    if "flamingo" in kind:
        return total + hidden * decoder + decoder * decoder + 2 * decoder
    return total + hidden * decoder + decoder


def _conformer(raw: Mapping[str, Any], hidden: int, layers: int, decoder: int) -> int:
    """Gemma 4's: two feed-forwards, attention with relative keys and a gated convolution a layer, no biases."""
    heads, kernel = _int(raw, "num_attention_heads") or 8, _int(raw, "conv_kernel_size") or 5
    first, second = raw.get("subsampling_conv_channels") or (128, 32)
    layer = 24 * hidden * hidden + (9 + kernel) * hidden + hidden // heads
    entry = 9 * first + first + 9 * first * second + second + 32 * second * hidden  # 128 mel bins, halved twice
    wide = _int(raw, "output_proj_dims") or hidden
    return layers * layer + entry + wide * hidden + wide + wide * decoder


def _int(config: Mapping[str, Any], *names: str) -> int:
    return next((int(config[n]) for n in names if isinstance(config.get(n), int | float)), 0)
