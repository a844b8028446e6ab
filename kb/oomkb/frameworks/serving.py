"""What inference engines have in common."""

from __future__ import annotations

from oomkb.frameworks.model import Default
from oomkb.memory.job import Job
from oomkb.units import GIB

__all__ = ["COMMON", "card_gib"]


def card_gib(job: Job) -> float | None:
    """What one card holds: as stated, or as the catalogue knows it by the card's name."""
    if job.capacity_gib or not job.gpu:
        return job.capacity_gib
    from oomkb.catalog import gpus

    found = gpus.find(job.gpu)
    return found.capacity_bytes / GIB if found else None


COMMON = (
    Default("objective", "inference", "an inference engine", "the engine's purpose"),
    Default("method", "none", "nothing is trained", "the engine's purpose"),
    Default("param_dtype", "bf16", "dtype auto takes the checkpoint's dtype", "engine arguments"),
    Default("tp", 1, "tensor parallelism is off unless set", "engine arguments"),
    Default("pp", 1, "pipeline parallelism is off unless set", "engine arguments"),
)
