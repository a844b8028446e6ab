"""The price of a conversation's job, or why it has none; and what follows from its machines."""

from __future__ import annotations

from oomdoc.diagnosis.known_run import priced_run
from oomdoc.evidence import problem_of
from oomdoc.report.words import render
from oomkb.errors import CatalogError, JobError
from oomkb.memory.job import Job
from oomkb.pricing import Priced


def price_of(job: Job, language: str, *, strict: bool = False) -> tuple[Priced | None, str]:
    """The price, or why there is none. ``strict``: an impossible job is an error of this turn."""
    try:
        return priced_run(job), ""
    except JobError as error:
        if strict and error.where not in ("model", "params_b"):
            raise
        return None, render(problem_of(error), language)
    except CatalogError as error:
        return None, render(problem_of(error), language)


def with_world(job: Job) -> Job:
    """The world follows from machines and GPUs; over one GPU, FSDP without offload has nothing to shard."""
    world = job.gpus * (job.nodes or 1) if job.gpus else None
    if world == 1 and job.sharding in ("fsdp", "fsdp2") and not job.offload:
        job = job.with_fields({"sharding": None})
    return job.with_fields({"world": world, "dp": None}) if world is not None and job.world != world else job
