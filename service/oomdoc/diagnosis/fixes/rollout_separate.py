"""Generation on GPUs of its own: the engine and the trainer stop competing, the trainer has fewer ranks.

One of the machine's GPUs (or a tensor-parallel group) goes to the engine, the rest train.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    rollout = job.rollout
    if rollout is None or rollout.colocated is False or not context.has("rollout.separate"):
        return
    machine = max(job.gpus or 0, world_size(job)) + context.spare_gpus
    engine = rollout.tensor_parallel or 1
    if (job.nodes or 1) > 1 or machine - engine < 1:
        return
    note = say("fixes.rollout-separate.how", train_gpus=machine - engine, engine_gpus=engine)
    fields = {"rollout.colocated": False, "world": machine - engine, "gpus": machine - engine, "dp": None}
    yield Variant(fields=fields, effort=1.2, notes=(note,))
    # Several trainers where there was one: with ZeRO-3 they share the model.
    plain = job.quant in (None, "none") and job.optimizer in (None, "adamw")
    unsharded = job.sharding in (None, "none", "ddp", "zero1", "zero2")
    if machine - engine > 1 and unsharded and plain and context.has("zero"):
        yield Variant(fields={**fields, "sharding": "zero3"}, effort=1.5, notes=(note,))


REMEDY = Remedy(
    name="rollout-separate",
    safety="same-numbers",
    kinds=frozenset({"rl"}),
    variants=_variants,
    reduces=("rollout", "engine", "kv"),
)
