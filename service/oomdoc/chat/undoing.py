"""Taking back: one step, several, all, or the changes of a named field."""

from __future__ import annotations

from typing import Final

from oomdoc.chat.phrases import fields_named
from oomdoc.chat.session import DERIVED, Session
from oomdoc.chat.wording import patterns
from oomdoc.intake.numbers import read_number
from oomkb.dataclass import dataclass
from oomkb.memory.job import Job

_RE: Final = patterns("undoing")


@dataclass(frozen=True, slots=True)
class Undo:
    """``fields`` (if any) at most ``steps`` changes back, or ``everything``."""

    steps: int = 1
    everything: bool = False
    fields: tuple[str, ...] = ()
    said_outright: bool = True
    """Whether the words can mean nothing else: "undo", and not "never mind"."""
    kept: tuple[str, ...] = ()
    """Fields that stay as they are where all the rest goes back."""


def read_undo(turn: str, *, changes: bool) -> Undo | None:
    """What is to be taken back; ``None`` where nothing is.

    :param changes: whether the turn states values: "never mind, batch 2" is a change.
    """
    outright = _RE["hard"].search(turn) is not None
    if not outright and (changes or not (_RE["soft"].search(turn) or _RE["back"].search(turn))):
        return None
    match = _RE["steps"].search(turn)
    steps = 1
    if match:
        steps = 2 if match["both"] else int(read_number(match["n"] or match["z"]))
    return Undo(max(1, steps), bool(_RE["original"].search(turn)), fields_named(turn), outright)


def takes_back(turn: str) -> bool:
    """Whether the words turn away from what was said before: "never mind", "forget that", "go back"."""
    return any(_RE[row].search(turn) for row in ("hard", "soft", "back"))


def target_of(session: Session, undo: Undo) -> Job:
    """The job that an undo goes back to."""
    last = len(session.steps) - 1
    if undo.everything:
        kept = {name: session.job.get(name) for name in undo.kept if session.job.get(name) is not None}
        return session.steps[0].job.with_fields(kept)
    if undo.fields:
        return _without(session, undo.fields, undo.steps)
    return session.steps[max(0, last - undo.steps)].job


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
        old = session.steps[index - 1].job
        values = {name: old.get(name) for name in touched}
        job = (job or session.job).with_fields({n: list(v) if isinstance(v, tuple) else v for n, v in values.items()})
        count -= 1
        if count <= 0:
            break
    return job or session.steps[max(0, len(session.steps) - 1 - count)].job
