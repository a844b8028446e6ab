"""Views of a job that a conversation may ask for: plans, verdict, configuration, what each change brought."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from oomdoc.chat import answers, parts
from oomdoc.chat.answers import explained, largest
from oomdoc.chat.parts import joined
from oomdoc.chat.prices import price_of, with_world
from oomdoc.chat.questions import topic_of
from oomdoc.chat.session import Reply, Session
from oomdoc.chat.written import configuration
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
    return reply_of(session, priced, [*plans, *state[:2], *parts.asks(session.job, language)])


def fits(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """Whether it fits, the verdict first."""
    language = session.language
    if priced is None or priced.estimate.capacity_bytes is None:
        return explained(priced, problem, session.job, text, language)
    state = parts.state(priced, problem, session.job, language)
    said = [state[1], state[0], *state[2:]]
    if priced.estimate.fits is False:
        said += parts.planned(priced, language)
    return reply_of(session, priced, said)


def reply_of(session: Session, priced: Priced | None, said: list[str], *, lines: bool = False) -> Reply:
    """:param lines: whether the sentences are lines of a text, each of which counts."""
    job: Job = session.job
    return Reply("\n".join(said) if lines else joined(said), {}, job, priced.estimate.process_bytes if priced else None)


def written(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """The configuration as it stands, in the person's own text or their framework's keys."""
    diff = topic_of(text) == "diff"
    if session.proposed:  # what was asked about last is what is to be written
        job = with_world(session.job.with_fields(session.proposed))
        said = configuration(session.then(job, session.proposed), diff=diff, language=session.language)
        return reply_of(session, priced, [*said, word("chat.would-apply", session.language)], lines=True)
    return reply_of(session, priced, configuration(session, diff=diff, language=session.language), lines=True)


def breakdown(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """The largest terms of the peak."""
    if priced is None:
        return explained(priced, problem, session.job, text, session.language)
    state = parts.state(priced, problem, session.job, session.language)
    return reply_of(session, priced, [*parts.owner(priced.estimate, session.language), *state])


def requests(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """How many requests a server holds at once."""
    if priced is None or priced.estimate.served is None:
        return explained(priced, problem, session.job, text, session.language)
    said = answers.requests(priced, text, session.language) + parts.served(priced, session.language)
    return reply_of(session, priced, said)


def saved(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """Which of the changes brought most."""
    steps = []
    prices = [price_of(step.job, session.language)[0] for step in session.steps]
    for step, (old, new) in zip(session.steps[1:], itertools.pairwise(prices), strict=True):
        if old is not None and new is not None and step.changed:
            steps.append((step.changed, old, new))
    if not steps:
        return explained(priced, problem, session.job, text, session.language)
    head = word("chat.steps-head", session.language)
    return reply_of(session, priced, [head, *answers.saved(steps, session.language)])


TOPICS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        "pick": pick,
        "fits": fits,
        "config": written,
        "diff": written,
        "breakdown": breakdown,
        "requests": requests,
        "saved": saved,
    }
)
"""By what a question is about."""
