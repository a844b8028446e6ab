"""Taking back: one step, several, all, or the changes of a named field."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from oomdoc.chat.phrases import fields_named
from oomdoc.chat.session import DERIVED, Session
from oomdoc.intake.numbers import NUMBER, read_number
from oomkb.memory.job import Job

__all__ = ["Undo", "read_undo", "target_of"]

_BACK: Final = re.compile(r"(?i)\bgo(?:ing)?\sback\b|\bback\b|\brestore\b|\breturn\sto\b|回到|改回|恢复")
_HARD: Final = re.compile(
    r"(?i)\bundo\b|\brevert\b|\broll\s?back\b|\breset\b|\btake\s(?:it|that|them)\sback\b|\bstart\s(?:over|again)\b|\bscratch\sthat\b"
    r"|\bback\sto\s(?:the\s)?(?:original|start|first|initial|previous|before|beginning|what\s(?:i|we)\shad|where\swe\s(?:were|started))\b"
    r"|撤销|撤回|撤消|撤掉|回退|还原|重置|重来|重新开始|恢复(?:到|成)?(?:原|之前|最初|刚才|一开始)|回到(?:一开始|最初|原来|开始|之前|上一|刚才|最早)"
    r"|改回(?:去|来|原)|(?:加|调|变|退|还|换)回(?:去|来)"
    rf"|(?:刚才|上面|前面|后面?|最后|最近|这)(?:的|这|那)?{NUMBER}(?:个|步|项|处)(?:改动)?都?(?:不要|去掉|关|取消|算了)"
)
_SOFT: Final = re.compile(r"(?i)\bnever\s?mind\b|\bforget\s(?:that|it|the\slast)\b|\bnah\b|算了|不要了\Z")
_ORIGINAL: Final = re.compile(
    r"(?i)\b(?:original|start|initial|beginning|everything|all)\b|\bfirst\b(?!\s(?:change|step|edit|one|thing))|一开始|最初|原来|最早|全部|所有|重来|重新开始|重置"
)
_STEPS: Final = re.compile(
    rf"(?i)(?:last|previous|past)\s(?P<n>{NUMBER})|(?P<both>\bboth\b)|(?<!第)(?:上面|前面|最近|刚才|最后|后面?)?(?:这|那)?(?P<z>{NUMBER})\s?(?:步|次|个|处|项)"
)


@dataclass(frozen=True, slots=True)
class Undo:
    """``fields`` (if any) at most ``steps`` changes back, or ``everything``."""

    steps: int = 1
    everything: bool = False
    fields: tuple[str, ...] = ()


def read_undo(turn: str, *, changes: bool) -> Undo | None:
    """What is to be taken back; ``None`` where nothing is.

    :param changes: whether the turn states values: "never mind, batch 2" is a change.
    """
    if not _HARD.search(turn) and (changes or not (_SOFT.search(turn) or _BACK.search(turn))):
        return None
    match = _STEPS.search(turn)
    steps = 1
    if match:
        steps = 2 if match["both"] else int(read_number(match["n"] or match["z"]))
    return Undo(max(1, steps), bool(_ORIGINAL.search(turn)), fields_named(turn))


def target_of(session: Session, undo: Undo) -> Job:
    """The job that an undo goes back to."""
    last = len(session.steps) - 1
    if undo.everything:
        return session.steps[0].job
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
        job = _restored(job or session.job, session.steps[index - 1].job, touched)
        count -= 1
        if count <= 0:
            break
    return job or session.steps[max(0, len(session.steps) - 1 - count)].job


def _restored(job: Job, old: Job, names: list[str]) -> Job:
    return job.with_fields({name: _plain(old.get(name)) for name in names})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
