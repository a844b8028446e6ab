"""Pipeline stages: how many micro-batches wait on the first and on the last one, and which of the two is fuller.

The first stage of 1F1B holds one micro-batch per stage, the last one its own and the loss (arXiv 2104.04473, section
2.2). Interleaved schedules run ``2 (p - 1) + (m - 1) p`` chunks ahead on the first of ``p`` stages with ``m`` chunks
each, ``(m - 1) p`` on the last (Megatron-LM ``core/pipeline_parallel/schedules.py``): in whole stages
``p + (p - 1) / m`` on the first, as in arXiv 2205.05198, section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomkb.memory.setting import Setting
from oomkb.memory.step import Extra, Step

__all__ = ["fullest", "in_flight", "waiting_bytes"]

_LOSS: Final = frozenset({"logits"})


def in_flight(stages: int, micro_batches: int, chunks: int = 1) -> tuple[float, float]:
    """Micro-batches whose activations the first and the last stage hold at once, in whole stages.

    :param chunks: virtual stages on each rank.
    """
    ahead = (chunks - 1) * stages + 1
    first = ahead + 2 * (stages - 1) if chunks > 1 else stages
    most = micro_batches * chunks
    return min(most, first) / chunks, min(most, ahead) / chunks


def waiting_bytes(s: Setting, step: Step, tokens: float, square: float) -> tuple[float, float]:
    """Bytes of the activations of the other micro-batches that wait on the first and on the last stage."""
    c, t, q = step.saved
    one = c + t * tokens + q * square
    first, last = in_flight(s.pp, s.accum, s.chunks) if s.pp > 1 else (1.0, 1.0)
    return one * (first - 1), one * (last - 1)


def fullest(
    s: Setting, step: Step, phase: str, tokens: float, square: float, wrapped: Extra
) -> tuple[float, Mapping[str, float]]:
    """What waits and what runs at the fullest instant of a phase, on whichever stage is fuller.

    :returns: bytes of waiting activations, and the terms of what runs.
    """
    size, terms = step.peak(phase, tokens, square, wrapped)
    if s.pp <= 1:
        return 0.0, terms
    first, last = waiting_bytes(s, step, tokens, square)
    early_size, early = step.peak(phase, tokens, square, wrapped, without=_LOSS)
    return (first, early) if early and first + early_size > last + size else (last, terms)
