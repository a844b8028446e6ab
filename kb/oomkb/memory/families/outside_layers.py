"""What a model has beside its layers, its embedding and its head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oomkb.memory.families.dimensions import Dims
from oomkb.memory.families.encoder_decoder import pair_extra
from oomkb.memory.names import whole

_AUDIO = ("qwen2_audio", "qwen2_5_omni", "qwen3_omni", "voxtral", "audioflamingo", "musicflamingo", "gemma4")
GEMMA3N_TOWERS: Final = 983_281_504
"""MobileNet-V5, the audio encoder and both projections: what gemma-3n-E2B-it and -E4B-it (5,439,438,272 and
7,849,978,192 parameters) hold beside their text models: the same in both; no configuration gives its sizes."""
PHI4MM_TOWERS: Final = 907_966_432
"""SigLIP, the speech encoder and their projections in Phi-4-multimodal-instruct (5,574,460,384 parameters published),
without the text model and the adapters that its configuration describes."""
_BERT = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "ernie", "data2vec-text", "electra"})


def audio_known(config: Mapping[str, Any]) -> bool:
    """Whether the model has no audio tower, or one of the known layout."""
    raw, kind = config.get("audio_config"), str(config.get("model_type") or "")
    return not isinstance(raw, Mapping) or (kind.startswith(_AUDIO) and not kind.endswith("realtime"))


def audio_params(config: Mapping[str, Any], decoder: int) -> int:
    """The audio encoder beside a decoder of width ``decoder`` and what joins them; nothing where there is none."""
    raw = config.get("audio_config")
    if not isinstance(raw, Mapping):
        return 0
    kind = str(config.get("model_type") or "")
    hidden = whole(raw, "d_model", "hidden_size")
    layers = whole(raw, "encoder_layers", "num_hidden_layers")
    if not hidden or not layers:
        return 0
    if kind.startswith("gemma4"):
        return _conformer(raw, hidden, layers, decoder)
    ffn = whole(raw, "encoder_ffn_dim", "intermediate_size") or 4 * hidden
    mels = whole(raw, "num_mel_bins") or 128
    layer = 4 * hidden * hidden + 3 * hidden + 2 * hidden * ffn + ffn + hidden + 4 * hidden
    if kind.startswith("qwen3_omni"):  # frames are joined by three convolutions over both axes
        wide, rows = whole(raw, "downsample_hidden_size") or 480, -(-mels // 8)
        entry = 9 * wide + 2 * 9 * wide * wide + 3 * wide + wide * rows * hidden
        return layers * layer + entry + 2 * hidden + hidden * hidden + hidden + hidden * decoder + decoder
    total = layers * layer + 3 * hidden * (mels + hidden) + 2 * hidden + 2 * hidden
    if "omni" in kind:  # sinusoidal positions; two learned tokens around the sound
        return total + 2 * decoder + hidden * decoder + decoder
    total += (whole(raw, "max_source_positions") or 1500) * hidden
    if kind == "voxtral":  # four frames are joined before two layers without biases
        return total + ffn * decoder + decoder * decoder
    if "flamingo" in kind:
        return total + hidden * decoder + decoder * decoder + 2 * decoder
    return total + hidden * decoder + decoder


def _conformer(raw: Mapping[str, Any], hidden: int, layers: int, decoder: int) -> int:
    """Gemma 4's: two feed-forwards, attention with relative keys and a gated convolution a layer, no biases."""
    heads, kernel = whole(raw, "num_attention_heads") or 8, whole(raw, "conv_kernel_size") or 5
    first, second = raw.get("subsampling_conv_channels") or (128, 32)
    layer = 24 * hidden * hidden + (9 + kernel) * hidden + hidden // heads
    entry = 9 * first + first + 9 * first * second + second + 32 * second * hidden  # 128 mel bins, halved twice
    wide = whole(raw, "output_proj_dims") or hidden
    return layers * layer + entry + wide * hidden + wide + wide * decoder


def extra_params(d: Dims, config: Mapping[str, Any]) -> int:
    """Per-layer embeddings, poolers, relative positions, audio towers."""
    c, h, kind = d.fields, d.hidden, d.model_type
    extra = audio_params(_outer(config), h) + _layer_inputs(d)
    if config.get("model_type") == "gemma3n":
        extra += GEMMA3N_TOWERS
    if config.get("model_type") == "fuyu":  # patches go straight into the decoder
        extra += (int(config.get("patch_size") or 30) ** 2 * int(config.get("num_channels") or 3) + 1) * h
    if kind == "phi4mm":
        extra += PHI4MM_TOWERS + _mounted_adapters(d)
    if d.encoder_layers:
        extra += pair_extra(kind, c, h, d.heads)
    if kind in _BERT:
        extra += int(c.get("type_vocab_size") or 0) * h + (h * h + h if c.get("add_pooling_layer", True) else 0)
    if kind == "modernbert-decoder":
        extra += h * h + d.vocab  # a dense layer and a bias before the tied head; the first layer lacks a norm
    if kind == "deepseek_v4":
        streams = int(c.get("hc_mult") or 4)
        extra += streams * streams * h + streams + 1
    if kind == "gpt_neox_japanese":
        extra += h
    if kind == "mimo":  # multi-token prediction: norms of both inputs, their projection, a layer, a norm
        extra += int(c.get("num_nextn_predict_layers") or 0) * (2 * h * h + 3 * h + _plain_layer(d))
    return extra


def _outer(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get("thinker_config")
    return inner if isinstance(inner, Mapping) else config


def _mounted_adapters(d: Dims) -> int:
    """Adapters for vision and speech that are part of the checkpoint, on every projection of every layer."""
    ranks = 0
    for name, usual in (("vision_lora", 256), ("speech_lora", 320)):
        own = d.fields.get(name)
        ranks += int(own.get("r") or usual) if isinstance(own, Mapping) else usual
    sides = 2 * d.hidden + 2 * d.q_width + 2 * d.kv_width + 2 * d.hidden + 3 * d.ffn
    return d.layers * ranks * sides


def _plain_layer(d: Dims) -> int:
    attention = d.hidden * (d.q_width + 2 * d.kv_width + d.o_width) + d.qkv_bias * (d.q_width + 2 * d.kv_width)
    return attention + 3 * d.hidden * d.ffn + 2 * d.hidden


def _layer_inputs(d: Dims) -> int:
    """Gemma 3n and 4: an embedding per layer, its projection from the hidden states; Gemma 3n's alternating copies."""
    c, width = d.fields, d.layer_input
    if not width:
        return 0
    vocab = int(c.get("vocab_size_per_layer_input") or d.vocab)
    copies = int(c.get("altup_num_inputs") or 1) - 1
    return d.layers * width * (vocab + d.hidden) + width + 2 * copies * d.hidden * d.hidden
