"""What a conversation has dealt with lately, and what it still has to ask."""

from __future__ import annotations

from oomdoc.chat.context import Context, Recent
from oomdoc.chat.explicit import field_named
from oomdoc.chat.session import DERIVED, Session
from oomkb.memory.job import Job
from oomkb.pricing import device_of


def wanted(job: Job) -> tuple[str, ...]:
    """The facts without which no verdict is possible, in the order in which they are asked for."""
    if not job.has_model:
        return ("model",)
    missing = []
    if not job.has_card:
        missing.append("gpu")
    device = device_of(job)
    if job.gpus is None and job.world is None and not (device is not None and device.unified):
        missing.append("gpus")
    if job.seq_len is None and job.objective != "inference" and not job.completion_len:
        missing.append("seq_len")
    return tuple(missing)


def context_of(session: Session) -> Context:
    """What the next turn may leave out."""
    refused = [field_named(key, session.job.framework) for key in session.refused]
    recent = [Recent(name) for name in refused if name]
    recent += [Recent(name, session.job.get(name)) for name in session.about]
    recent += [Recent(name, session.job.get(name)) for name in session.proposed if name not in DERIVED]
    for index in range(len(session.steps) - 1, 0, -1):
        before = session.steps[index - 1].job
        recent += [Recent(name, before.get(name)) for name in session.steps[index].changed if name not in DERIVED]
    earlier = tuple(step.job for step in reversed(session.steps))
    tried = tuple(step.job for step in session.tried)
    about = (session.proposed, bool(refused), (*session.about, *wanted(session.job)))
    latest = tuple(step.changed for step in session.tried[-2:])
    return Context(session.job, tuple(recent), *about, earlier, tried, latest, session.offered)
