"""Questions that are not about one term of the memory, and small talk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from oomdoc.chat import parts
from oomdoc.chat.answers import explained, largest
from oomdoc.chat.parts import joined
from oomdoc.chat.session import Reply, Session
from oomdoc.report.words import word
from oomkb.memory.job import Job
from oomkb.pricing import Priced

Answer = Callable[[Session, Priced | None, str, str], Reply]


def pick(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """What oomdoc would do."""
    language = session.language
    if priced is None:
        return explained(priced, problem, session.job, text, language)
    plans = parts.planned(priced, language, most=3)
    if not plans:
        key = "chat.pick-fits" if priced.estimate.fits else "chat.pick-none"
        plans = [word(key, language), *largest(priced, language)]
    elif len(plans) > 1:
        plans = [word("chat.pick-head", language), *(f"- {p}" for p in plans)]
    state = parts.state(priced, problem, session.job, language)
    return _reply(session, priced, [*plans, *state[:2], *parts.asks(session.job, language)])


def fits(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """Whether it fits, the verdict first."""
    language = session.language
    if priced is None or priced.estimate.capacity_bytes is None:
        return explained(priced, problem, session.job, text, language)
    state = parts.state(priced, problem, session.job, language)
    said = [state[1], state[0], *state[2:]]
    if priced.estimate.fits is False:
        said += parts.planned(priced, language)
    return _reply(session, priced, said)


def pleasantry(session: Session, priced: Priced | None, topic: str) -> Reply:
    """Small talk, and what is none of oomdoc's business."""
    language = session.language
    said = [word(f"chat.{topic}" if topic else "chat.off-topic", language)]
    if topic == "greeting" and not session.steps:
        said.append(word("chat.begin", language))
    peak = priced.estimate.process_bytes if priced is not None else None
    return Reply(joined(said), {}, session.job, peak)


def _reply(session: Session, priced: Priced | None, said: list[str]) -> Reply:
    job: Job = session.job
    return Reply(joined(said), {}, job, priced.estimate.process_bytes if priced else None)


TOPICS: Final[Mapping[str, Answer]] = MappingProxyType({"pick": pick, "fits": fits})
"""By what a question is about."""
