"""Going back in a conversation, and what it has dealt with lately."""

from __future__ import annotations

from typing import Any

from oomdoc.chat.context import Context, Recent
from oomdoc.chat.explicit import field_named
from oomdoc.chat.grammar import Turn
from oomdoc.chat.session import DERIVED, Session
from oomkb.memory.job import Job

__all__ = ["context_of", "redone", "target_of", "wanted"]


def wanted(job: Job) -> tuple[str, ...]:
    """The facts without which no verdict is possible, in the order in which they are asked for."""
    if job.model is None and job.params_b is None:
        return ("model",)
    missing = []
    if job.gpu is None and job.capacity_gib is None:
        missing.append("gpu")
    if job.gpus is None and job.world is None:
        missing.append("gpus")
    if job.seq_len is None and job.objective != "inference" and not job.completion_len:
        missing.append("seq_len")
    return tuple(missing)


def context_of(session: Session) -> Context:
    """What the next turn may leave out."""
    refused = [field_named(key, session.job.framework) for key in session.refused]
    recent = [Recent(name) for name in refused if name]
    recent += [Recent(name, session.job.get(name)) for name in session.proposed if name not in DERIVED]
    for index in range(len(session.steps) - 1, 0, -1):
        before = session.steps[index - 1].job
        recent += [Recent(name, before.get(name)) for name in session.steps[index].changed if name not in DERIVED]
    return Context(session.job, tuple(recent), session.proposed, wanted(session.job))


def redone(session: Session) -> Job | None:
    """The job before the last undo; ``None`` where nothing was taken back."""
    for index in range(len(session.steps) - 1, 0, -1):
        if session.steps[index].undone:
            return session.steps[index - 1].job
    return None


def target_of(session: Session, turn: Turn) -> Job:
    """The job that an undo goes back to."""
    last = len(session.steps) - 1
    if turn.undo_all:
        return session.steps[0].job
    if 0 < turn.undo_step <= last:
        changed = [n for n in session.steps[turn.undo_step].changed if n != "dp"]
        return _restored(session.job, session.steps[turn.undo_step - 1].job, changed)
    if turn.undo_fields:
        return _without(session, turn.undo_fields, turn.undo_steps)
    return session.steps[max(0, last - turn.undo_steps)].job


def _without(session: Session, names: tuple[str, ...], count: int) -> Job:
    """The job with the latest changes of the named fields taken back; without such a change, one step back."""
    job = None
    for index in range(len(session.steps) - 1, 0, -1):
        touched = [f for f in session.steps[index].changed if f in names or f.partition(".")[0] in names]
        if not touched:
            continue
        # Degrees derived from the number of GPUs go back with it.
        touched += [f for f in DERIVED if "gpus" in touched or "nodes" in touched]
        if "gpu" in touched and "capacity_gib" in session.steps[index].changed:
            touched.append("capacity_gib")
        job = _restored(job or session.job, session.steps[index - 1].job, touched)
        count -= 1
        if count <= 0:
            break
    return job or session.steps[max(0, len(session.steps) - 1 - count)].job


def _restored(job: Job, old: Job, names: list[str]) -> Job:
    return job.with_fields({name: _plain(old.get(name)) for name in names})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
