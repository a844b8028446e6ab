"""The share of the generation engine that lives on the training GPUs: what it reserves, training cannot have.

Down where training lacks the room; up (:data:`HIGHER`) where it is less than the engine itself needs to start.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["HIGHER", "REMEDY"]

_LOWEST = 0.15
_HIGHEST = 0.9
_STEP = 0.05


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("rollout.gpu_memory_utilization")
    if now is None or job.get("rollout.colocated") is False or not context.has("rollout"):
        return
    for rank, lower in enumerate((0.7, 0.6, 0.5, 0.4, 0.3, 0.2)):
        if _LOWEST <= lower < now:
            yield Variant(fields={"rollout.gpu_memory_utilization": lower}, effort=0.4 + 0.1 * rank)


REMEDY = Remedy(
    name="rollout-utilization",
    safety="same-numbers",
    kinds=frozenset({"rl"}),
    variants=_variants,
    reduces=("rollout", "engine", "kv"),
)


def _higher(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("rollout.gpu_memory_utilization")
    if now is None or not context.has("rollout"):
        return
    steps = int((_HIGHEST - now) / _STEP + 1e-9)
    for n in range(1, steps + 1):
        yield Variant(fields={"rollout.gpu_memory_utilization": round(now + n * _STEP, 2)}, effort=0.2)


HIGHER = Remedy(name="rollout-utilization", safety="same-numbers", kinds=frozenset({"rl"}), variants=_higher)
