"""Predicates over a job that defaults depend on."""

from __future__ import annotations

from oomkb.memory.job import Job

__all__ = ["RL", "distributed", "engine_dtype", "fsdp", "full", "lora", "preference", "quantised", "rl", "zero"]

RL = ("ppo", "grpo")
_QUANTISED_NOT = (None, "none")


def distributed(job: Job) -> bool:
    """More than one rank."""
    return (job.world or (job.gpus or 1) * (job.nodes or 1)) > 1


def zero(job: Job) -> bool:
    """DeepSpeed ZeRO of any stage."""
    return (job.sharding or "").startswith("zero")


def fsdp(job: Job) -> bool:
    """PyTorch FSDP in any form."""
    return job.sharding in ("fsdp", "fsdp2", "hsdp", "shard-grad-op")


def lora(job: Job) -> bool:
    """Low-rank adapters on a frozen base."""
    return job.method in ("lora", "qlora")


def full(job: Job) -> bool:
    """Every parameter is trained."""
    return job.method == "full"


def quantised(job: Job) -> bool:
    """The base weights are stored in fewer than 16 bits."""
    return job.quant not in _QUANTISED_NOT


def preference(job: Job) -> bool:
    """Objectives that compare with a reference model."""
    return job.objective in ("dpo", "kto")


def rl(job: Job) -> bool:
    """Objectives that generate while training."""
    return job.objective in RL


def engine_dtype(job: Job) -> str:
    """The 16-bit dtype a DeepSpeed engine holds parameters in."""
    return "fp16" if job.autocast == "fp16" else "bf16"
