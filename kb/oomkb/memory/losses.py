"""Losses that never make the whole logits, and what they hold instead."""

from __future__ import annotations

import math

from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

_CHUNK_ROWS = 128
_TILE = (4096.0, 32768.0)


def chunked_loss_bytes(s: Setting, shape: ModelShape, tokens: float) -> float:
    """Transient bytes of a fused linear cross-entropy.

    Liger (``ops/fused_linear_cross_entropy.py``): rows per chunk are ``next_pow2(ceil(N / ceil(V / H)))``; a chunk
    of logits in the compute dtype and its fp32 copy, the gradient of all hidden states, and of a trained head.
    lit-gpt computes head and loss in a list of chunks of 128 positions (``lm_head_chunk_size=128`` in
    ``litgpt/finetune/lora.py``, ``litgpt/model.py`` and ``chunked_cross_entropy`` of ``litgpt/utils.py``); torchtune
    lists the logits in eighths, and all of them are kept (``CEWithChunkedOutputLoss``): their log-softmax in fp32
    besides, unless the loss is compiled. TRL from 1.15 on (``kernels/chunked_logprob.py``) projects the scored
    positions, copied, in tiles of 4,096 tokens and 32,768 columns, and keeps both gradients in fp32 to the last tile.
    unsloth (``unsloth_zoo/fused_losses/cross_entropy_loss.py``) counts chunks by fours from the fp32 logits' size: up
    to twice its target all of them are one chunk, the logits and their gradient in the compute dtype.
    """
    d = shape.dims
    width = d.vocab / s.tp
    if s.litgpt:  # the list of all chunks stays in the caller's hands, and each chunk's log-softmax for backward
        rows = float(_CHUNK_ROWS)
        head = width * d.hidden * 2.0 if s.quant != "none" else 0.0  # dequantized for each chunk
        return rows * width * (s.compute_bytes + 8) + 2 * tokens * width * s.compute_bytes + head
    if s.style == "chunked":
        rows, columns = min(tokens, _TILE[0]), min(width, _TILE[1])
        cast = columns * d.hidden * s.compute_bytes if s.param_bytes > s.compute_bytes else 0.0
        grads = s.compute_bytes + 4.0  # the hidden states that are scored, copied, and their gradient
        head = 0.0 if s.adapters else width * d.hidden * (4.0 + (s.param_bytes if s.param_bytes < 4 else 0))
        return rows * columns * s.compute_bytes + tokens * d.hidden * grads + head + cast
    if "torchtune" in s.framework:
        kept, one = (0, s.compute_bytes) if s.compile else (4, 4)
        return tokens * width * (s.compute_bytes + kept + one / 8)
    if s.chunk_gib:
        rows = math.ceil(tokens / max(1, round(tokens * width / GIB / s.chunk_gib) * 4))
        return rows * width * s.compute_bytes * 2 + tokens * d.hidden * s.compute_bytes
    wanted = max(1, math.ceil(tokens / max(1, math.ceil(width / d.hidden))))
    rows = float(min(tokens, 2 ** math.ceil(math.log2(wanted))))
    head = 0.0 if s.adapters else width * d.hidden * (s.compute_bytes + 4)
    return rows * width * (s.compute_bytes + 4) + tokens * d.hidden * s.compute_bytes + head
