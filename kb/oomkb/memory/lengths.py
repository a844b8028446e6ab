"""How long the sequences of a batch are, as far as a job says."""

from __future__ import annotations

from typing import Final

from oomkb.memory.job import Job

TYPICAL: Final = 0.25
"""Of a batch without padding one sample is taken as long as the limit, the others as long as this share of it: an
assumption, on the safe side of the one mean that is published with its limit (OpenOrca, 289 of 4,096 tokens,
``bench/measured/unseen5.jsonl``)."""


def is_loose(job: Job) -> bool:
    """Whether samples are laid end to end as they come (``padding_free``), not filled up to the limit."""
    return bool(job.packing) and job.extra.get("padding_free") is True and not job.micro_tokens


def typical_rows(sequences: float) -> float:
    """How many sequences of the limit's length a batch without padding is."""
    return TYPICAL * sequences + 1 - TYPICAL


def changes(job: Job, loose: bool) -> bool:
    """Whether sizes change from step to step: what a step leaves behind fits no other, unless it is given back."""
    padded = job.packing is False and "packing" not in job.assumed
    return (loose or padded) and not job.extra.get("torch_empty_cache_steps")


def usual_length(job: Job) -> int:
    """Tokens of a sequence where none are stated."""
    if job.prompt_len or job.completion_len:
        return (job.prompt_len or 512) + (job.completion_len or 512)
    return 2048
