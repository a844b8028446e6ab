"""What the loop around the model does, as far as a job says: how long its sequences are, what its names keep alive.

What a training script's own loop keeps is read off the job's ``loop``, and traced by ``bench/trace_loops.py``.
"""

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


def script_loss(job: Job) -> str:
    """Who computes the loss where it is not the model: ``script`` or ``script-shifted``; empty otherwise."""
    stated = job.loop.loss if job.loop else None
    return stated if stated in ("script", "script-shifted") else ""


def kept_logits(job: Job, compute_bytes: int) -> float:
    """Bytes for every logit that the loop's names hold from one step to the next: the logits', and a shifted copy's."""
    if job.loop is None or not job.loop.outputs_kept or job.fused_ce:
        return 0.0
    return (4.0 if compute_bytes == 4 else 2.0) * (2 if job.loop.loss == "script-shifted" else 1)


def keeps_cache(job: Job) -> bool:
    """Whether the outputs that are kept hold keys and values as well.

    transformers switches its cache off under its own gradient checkpointing, not under a sharding wrapper's.
    """
    own = job.grad_ckpt and job.sharding not in ("fsdp", "fsdp2", "hsdp", "shard-grad-op")
    return bool(job.loop and job.loop.outputs_kept and job.loop.use_cache and not own)


def gradients_stay(job: Job) -> bool:
    """Whether gradients stay allocated through forward and backward."""
    return (job.grad_accum or 1) > 1 or bool(job.loop and job.loop.zero_grad_in_place)


def steps_in_backward(job: Job) -> bool:
    """Whether each gradient is applied and freed as soon as it is there: LOMO, and torchtune's ``optimizer_in_bwd``
    (``training/memory.py``, ``register_optim_in_bwd_hooks``).
    """
    return job.optimizer == "lomo" or job.extra.get("optimizer_in_bwd") is True
