"""The passes for log-probabilities of a reinforcement-learning step: no gradients, sequences of their own micro-batch.

Where the entropy is asked for as well (:func:`oomkb.memory.releases.scores_with_entropy`), verl's
``entropy_from_logits`` (``workers/actor/dp_actor.py``, ``compute_log_prob``, 0.9.1) holds the logits, their softmax and
one temporary of the log-sum-exp in the type of the logits; in chunks, the logits and a chunk's copies in fp32. Others
hold the logits and their fp32 copy.
"""

from __future__ import annotations

from typing import Final

from oomkb.memory.job import Job
from oomkb.memory.releases import scores_with_entropy
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape

_CHUNK: Final = 2048
"""Tokens of a chunk of the chunked entropy."""
_WIDE: Final = 4.0
_ENTROPY_COPIES: Final = 3
"""Logits, softmax, and the temporary of the log-sum-exp."""
_CHUNK_COPIES: Final = 3


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
    if not scores_with_entropy(job):
        return c + _WIDE
    if job.extra.get("entropy_from_logits_with_chunking"):
        return c + _CHUNK_COPIES * _WIDE * min(1.0, _CHUNK / max(tokens, 1.0))
    return _ENTROPY_COPIES * c
