"""Passes beside the training step: an evaluation between steps, log-probabilities; and a loss in chunks.

An evaluation: the Trainer asks for a loss, so that logits, their fp32 copy and its log-softmax stand at once. With
``compute_metrics`` the logits of all batches stay on the GPU until ``eval_accumulation_steps`` moves them (transformers
5.23, ``trainer.py``, ``evaluation_loop``; ``trainer_pt_utils.py``, ``EvalLoopContainer``): each batch, gathered from
all ranks, is joined to those before it in a new tensor. ``preprocess_logits_for_metrics`` makes them small before.

Log-probabilities of a reinforcement-learning step: no gradients, sequences of their own micro-batch.
Where the entropy is asked for as well (by verl's ``ray_trainer.py``, to 0.9), verl's
``entropy_from_logits`` (0.9.1; ``workers/engine/fsdp/transformer_impl.py``, 185) is compiled: beside the logits one
exponential in fp32, in the code that the compiler makes (``bench/trace_log_probs.py``). Not compiled, autocast gives
the softmax and the log-sum-exp an fp32 copy of the logits, and the latter a temporary (ATen ``ReduceOps.cpp``,
``logsumexp_out_impl``). In chunks: the logits and a chunk's copies in fp32. Others hold the logits and their fp32
copy.
"""

from __future__ import annotations

import math
from typing import Final

from oomkb.memory.loops import typical_rows
from oomkb.memory.ranks import stated_count
from oomkb.memory.releases import chunk_target
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

_CHUNK_ROWS = 128
_TILE = (4096.0, 32768.0)
_CHUNK: Final = 2048
"""Tokens of a chunk of the chunked entropy."""
_WIDE: Final = 4.0
_COPIES: Final = 3
"""Softmax, the logits in fp32, and the temporary of the log-sum-exp."""


def chunked_loss_bytes(s: Setting, shape: ModelShape) -> float:
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
    d, tokens = shape.dims, s.tokens
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
    if target := chunk_target(s.job):
        rows = math.ceil(tokens / max(1, round(tokens * width / GIB / target) * 4))
        return rows * width * s.compute_bytes * 2 + tokens * d.hidden * s.compute_bytes
    wanted = max(1, math.ceil(tokens / max(1, math.ceil(width / d.hidden))))
    rows = float(min(tokens, 2 ** math.ceil(math.log2(wanted))))
    head = 0.0 if s.adapters else width * d.hidden * (s.compute_bytes + 4)
    return rows * width * (s.compute_bytes + 4) + tokens * d.hidden * s.compute_bytes + head


def log_prob_terms(s: Setting, shape: ModelShape) -> dict[str, float]:
    """Terms of one pass at its fullest instant, over as many tokens as the longest sequences have."""
    d, c = shape.dims, s.compute_bytes
    tokens = float(s.job.log_prob_batch or 0) * s.seq / (s.cp * s.sp)
    width = d.vocab / s.tp
    layer = tokens * (3 * d.ffn / s.tp + 5 * d.hidden) * c if not d.experts else tokens * 5 * d.hidden * c
    gathered = (shape.largest_params + d.vocab * d.embed_width) / s.tp * c if s.sharding not in ("none", "ddp") else 0.0
    return {
        "logits and loss": max(tokens * width * _bytes_of_a_word(s, tokens), layer),
        "recomputed layer": tokens * d.hidden * c,
        "gathered weights": gathered,
    }


def _bytes_of_a_word(s: Setting, tokens: float) -> float:
    """Bytes that each word of the vocabulary takes for a token."""
    c = float(s.compute_bytes)
    if s.fused_ce:
        return c * min(1.0, _CHUNK / max(tokens, 1.0))
    entropy = "verl" in s.framework
    if entropy and s.job.extra.get("entropy_from_logits_with_chunking"):
        return c + _COPIES * _WIDE * min(1.0, _CHUNK / max(tokens, 1.0))
    whole = entropy and s.job.extra.get("use_torch_compile") is False
    return c + _WIDE * (_COPIES if whole else 1)


def evaluation_terms(s: Setting, shape: ModelShape) -> dict[str, float]:
    """Terms of a batch at the fullest instant of an evaluation.

    Autocast caches its casts of trained fp32 weights without gradients as well, to the end of the forward pass.
    """
    d, c = shape.dims, s.compute_bytes
    rows = typical_rows(s.eval_batch) if s.loose else float(s.eval_batch)
    tokens = rows * s.seq / (s.cp * s.sp)
    words = tokens * d.vocab / s.tp
    cast = s.autocast and not s.adapters and s.param_bytes == 4
    matrices = shape.linear_params / s.tp / s.pp + d.vocab * d.embed_width / s.tp
    batches, logits = _kept(s), words * (4.0 if s.autocast else c)
    layer = tokens * (3 * d.ffn / s.tp + 5 * d.hidden) * c if not d.experts else 0.0
    passing = {
        "logits and loss": max(words * (c + 8), layer - tokens * d.hidden * c) + (batches - 1) * logits,
        "recomputed layer": tokens * d.hidden * c,
        "cast weights": matrices * c if cast else 0.0,
    }
    joining = 2 * batches * logits if batches > 1 else 0.0
    return passing if sum(passing.values()) >= joining else {"logits and loss": joining}


def _kept(s: Setting) -> int:
    """Batches whose logits are on the GPU at once, the one in hand included."""
    job, stated = s.job, s.job.extra
    if not stated.get("compute_metrics") or stated.get("preprocess_logits_for_metrics"):
        return 1
    samples, steps = stated_count(job, "eval_samples"), stated_count(job, "eval_accumulation_steps")
    counts = [math.ceil(samples / s.eval_batch)] if samples is not None else []
    # What is kept was gathered from all ranks before.
    counts += [steps * s.dp] if steps is not None else []
    return max(1, min(counts, default=1))
