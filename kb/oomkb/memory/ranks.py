"""How the ranks of a job are laid out over its kinds of parallelism, and what cannot be laid out."""

from __future__ import annotations

from oomkb.errors import JobError
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape

__all__ = ["ranks"]


def ranks(job: Job, shape: ModelShape) -> tuple[int, int, int, int, int, int, int, int]:
    """(world, dp, tp, pp, cp, sp, ep, GPUs of one machine).

    :raises JobError: with the field and what would be valid.
    """
    tp, pp, cp, sp, ep = (job.tp or 1), (job.pp or 1), (job.cp or 1), (job.sp or 1), (job.ep or 1)
    d = shape.dims
    if d.heads % tp:
        valid = ", ".join(str(n) for n in range(1, min(d.heads, 64) + 1) if d.heads % n == 0)
        raise JobError(
            f"{tp} does not divide the model's {d.heads} attention heads", where="tp", hint=f"one of {valid}"
        )
    if pp > d.layers:
        raise JobError(f"{pp} stages for {d.layers} layers", where="pp", hint=f"at most {d.layers}")
    if ep > 1 and d.experts and d.experts % ep:
        raise JobError(
            f"{ep} does not divide the model's {d.experts} experts", where="ep", hint="a divisor of the expert count"
        )
    gpus = (job.gpus or 0) * (job.nodes or 1)
    model_parallel = tp * pp * cp
    world = job.world or gpus or (job.dp or 1) * model_parallel
    if world % model_parallel:
        raise JobError(
            f"tp x pp x cp = {model_parallel} does not divide {world} ranks",
            where="world",
            hint=f"a multiple of {model_parallel}",
        )
    dp = job.dp or world // model_parallel
    per_node = job.gpus or (min(world, 8) if not job.nodes else max(1, world // job.nodes))
    return world, dp, tp, pp, cp, sp, ep, per_node
