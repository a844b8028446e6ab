"""Put the generation engine to sleep while training: weights and KV cache are given back between rollouts."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.frameworks import has
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    rollout = job.rollout
    if rollout is None or rollout.sleep or rollout.colocated is False or not context.has("rollout.sleep"):
        return
    if rollout.engine is None or has(rollout.engine, "sleep"):
        yield Variant(fields={"rollout.sleep": True}, effort=0.5)


REMEDY = Remedy(
    name="rollout-sleep",
    safety="same-numbers",
    kinds=frozenset({"rl"}),
    variants=_variants,
    reduces=("rollout", "engine", "kv"),
)
