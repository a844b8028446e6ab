"""Jobs side by side: what each needs, whether it fits, and how fast it is beside the first."""

from __future__ import annotations

from collections.abc import Sequence

from oomdoc.messages import Message, problem_of
from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price_planned


@dataclass(frozen=True, slots=True)
class Compared:
    """One job of a comparison; ``priced`` is missing where the job has no price, and ``problem`` says why."""

    job: Job
    priced: Priced | None = None
    relative_speed: float | None = None
    """Optimizer steps per second beside those of the first job that has a price."""
    problem: Message | str | None = None


def compare(jobs: Sequence[Job]) -> list[Compared]:
    """Price each job; speeds are relative to the first that has a price."""
    from oomdoc.diagnosis.throughput import relative_speed, throughput

    rows: list[Compared] = []
    reference = None
    for job in jobs:
        try:
            priced = price_planned(job)
        except OomdocError as error:
            rows.append(Compared(job, problem=problem_of(error)))
            continue
        speed = throughput(priced.job, priced.shape, priced.device, priced.estimate.host_bytes)
        reference = reference or speed
        rows.append(Compared(job, priced, relative_speed(reference, speed)))
    return rows
