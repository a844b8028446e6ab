"""The frozen helpers (reference, reward, teacher) kept in host memory and brought in for their forward pass."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._extra import find, rewritten
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_ROLES = ("reference", "reward", "teacher")


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if any(not m.offload for m in find(job, *_ROLES)) and context.has("ref.offload"):
        note = say("fixes.reference-offload.how", line="--ref_reward_offload")
        yield Variant(fields={"extra_models": rewritten(job, _ROLES, offload=True)}, effort=0.5, notes=(note,))


REMEDY = Remedy(
    name="reference-offload",
    safety="same-numbers",
    kinds=frozenset({"preference", "rl"}),
    variants=_variants,
    reduces=("reference", "reward", "teacher", "extra"),
)
