"""The passes for log-probabilities of a reinforcement-learning step: no gradients, sequences of their own micro-batch.

Where the entropy is asked for as well (by verl's ``ray_trainer.py``, to 0.9), verl's
``entropy_from_logits`` (0.9.1; ``workers/engine/fsdp/transformer_impl.py``, 185) is compiled: beside the logits one
exponential in fp32, in the code that the compiler makes (``bench/trace_log_probs.py``). Not compiled, autocast gives
the softmax and the log-sum-exp an fp32 copy of the logits, and the latter a temporary (ATen ``ReduceOps.cpp``,
``logsumexp_out_impl``). In chunks: the logits and a chunk's copies in fp32. Others hold the logits and their fp32 copy.
"""

from __future__ import annotations

from typing import Final

from oomkb.memory.job import Job
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape

_CHUNK: Final = 2048
"""Tokens of a chunk of the chunked entropy."""
_WIDE: Final = 4.0
_COPIES: Final = 3
"""Softmax, the logits in fp32, and the temporary of the log-sum-exp."""


def log_prob_terms(job: Job, s: Setting, shape: ModelShape) -> dict[str, float]:
    """Terms of one pass at its fullest instant, over as many tokens as the longest sequences have."""
    d, c = shape.dims, s.compute_bytes
    tokens = float(job.log_prob_batch or 0) * s.seq / (s.cp * s.sp)
    width = d.vocab / s.tp
    layer = tokens * (3 * d.ffn / s.tp + 5 * d.hidden) * c if not d.experts else tokens * 5 * d.hidden * c
    gathered = (shape.largest_params + d.vocab * d.embed_width) / s.tp * c if s.sharding not in ("none", "ddp") else 0.0
    return {
        "logits and loss": max(tokens * width * _bytes_of_a_word(job, s, tokens), layer),
        "recomputed layer": tokens * d.hidden * c,
        "gathered weights": gathered,
    }


def _bytes_of_a_word(job: Job, s: Setting, tokens: float) -> float:
    """Bytes that each word of the vocabulary takes for a token."""
    c = float(s.compute_bytes)
    if s.fused_ce:
        return c * min(1.0, _CHUNK / max(tokens, 1.0))
    entropy = "verl" in s.framework
    if entropy and job.extra.get("entropy_from_logits_with_chunking"):
        return c + _COPIES * _WIDE * min(1.0, _CHUNK / max(tokens, 1.0))
    whole = entropy and job.extra.get("use_torch_compile") is False
    return c + _WIDE * (_COPIES if whole else 1)
