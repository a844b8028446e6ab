"""What a training script's own loop keeps alive, read off the job's ``loop``; traced by ``bench/trace_loops.py``."""

from __future__ import annotations

from oomkb.memory.job import Job


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
