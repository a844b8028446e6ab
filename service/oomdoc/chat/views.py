"""Views of a job that a conversation may ask for: plans, verdict, configuration, what each change brought."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from oomdoc.chat import answers, parts
from oomdoc.chat.answers import explained, largest
from oomdoc.chat.machine_and_model import named_framework
from oomdoc.chat.parts import joined
from oomdoc.chat.prices import price_of, with_world
from oomdoc.chat.questions import says, topic_of
from oomdoc.chat.session import Reply, Session
from oomdoc.chat.written import configuration
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.own_figures import savings
from oomdoc.report.words import render, word
from oomkb.memory.job import Job
from oomkb.pricing import Priced

Answer = Callable[[Session, Priced | None, str], Reply]


def pick(session: Session, priced: Priced | None, text: str) -> Reply:
    """What oomdoc would do."""
    language = session.language
    if priced is None:
        return explained(session.job, text, language)
    plans = parts.planned(priced, language, most=3, held=session.held)
    if not plans:
        key = {True: "chat.pick-fits", False: "chat.pick-none", None: ""}[priced.estimate.fits]
        saving = (render(one, language) for one in savings(priced.job, priced.estimate, session.held))
        plans = [*([word(key, language)] if key else []), *saving, *largest(priced, language)]
    elif len(plans) > 1:
        plans = [word("chat.pick-head", language), *(f"- {p}" for p in plans)]
    first = parts.standing(session.job, language, plans=False).said[:1]
    return reply_of(session, priced, [*plans, *first, *parts.asks(session.job, language)])


def reply_of(session: Session, priced: Priced | None, said: list[str], *, lines: bool = False) -> Reply:
    """:param lines: whether the sentences are lines of a text, each of which counts."""
    job: Job = session.job
    return Reply("\n".join(said) if lines else joined(said), {}, job, priced.estimate.process_bytes if priced else None)


def sure(session: Session, priced: Priced | None, text: str) -> Reply:
    """Between what limits the figure is."""
    if priced is None:
        return explained(session.job, text, session.language)
    said = word("chat.sure", session.language, **parts.limits(priced.estimate))
    return reply_of(session, priced, [said, *parts.standing(session.job, session.language, plans=False).said[:1]])


_SOLUTION: Final = re.compile(r"(?m)^(?:What to do: |What (?:would )?fits?: |做法：|放得下的做法：).+$")


_FITS: Final = re.compile("What (?:would )?fit|放得下")


def setting(session: Session, priced: Priced | None, text: str) -> Reply:
    """How what was dealt with last is written: what was asked about, what was changed, or what would make it fit."""
    language, job = session.language, session.job
    changes = dict(session.proposed)
    told = _SOLUTION.findall(session.described)
    planned = priced is not None and priced.estimate.fits is False and _FITS.match(told[0] if told else "")
    if told and not changes and session.fresh and not planned:
        return reply_of(session, priced, told, lines=True)
    if not changes and len(session.steps) > 1:
        changes = {n: v for n, v in session.steps[-1].changed.items() if v is not None}
    if priced is not None and not session.proposed and priced.estimate.fits is False:
        plan = next((one for one in parts.plans_of(priced, session.held) if one.priced), None)
        changes |= {n: v for change in plan.changes for n, v in change.fields.items()} if plan is not None else {}
    if not changes:
        lines = configuration(session, diff=False, language=language)
        return reply_of(session, priced, lines, lines=True)
    framework = named_framework(text) if job.framework is None else None
    goal = with_world(job.with_fields({**changes, "framework": framework or job.framework}))
    said = configuration(session.then(goal, changes), diff=True, language=language, only=changes)
    return reply_of(session, priced, said, lines=True)


def written(session: Session, priced: Priced | None, text: str) -> Reply:
    """The configuration as it stands, in the person's own text or their framework's keys."""
    diff = topic_of(text) == "diff"
    if diff and not session.written:
        return setting(session, priced, text)
    if session.proposed:  # what was asked about last is what is to be written
        job = with_world(session.job.with_fields(session.proposed))
        said = configuration(session.then(job, session.proposed), diff=diff, language=session.language)
        return reply_of(session, priced, [*said, word("chat.would-apply", session.language)], lines=True)
    return reply_of(session, priced, configuration(session, diff=diff, language=session.language), lines=True)


def rate(session: Session, priced: Priced | None, text: str) -> Reply:
    """Asked for a rate or a time, which no memory model tells."""
    return reply_of(session, priced, [word("chat.no-rate", session.language)])


def breakdown(session: Session, priced: Priced | None, text: str) -> Reply:
    """The largest terms of the peak."""
    if priced is None:
        return explained(session.job, text, session.language)
    stands = parts.standing(session.job, session.language, held=session.held).said
    return reply_of(session, priced, [*parts.owner(priced.estimate, session.language), *stands])


def room(session: Session, priced: Priced | None, text: str) -> Reply:
    """What is left of the card, of the run that was only asked about where the question goes on from it."""
    language, job = session.language, session.job
    if session.proposed and says(text, "goes_on"):
        job = with_world(job.with_fields(session.proposed))
        priced, _ = price_of(job, language)
    if priced is None:
        return explained(job, text, language)
    needed, capacity = needed_of(priced.estimate), priced.estimate.capacity_bytes
    if capacity is None:
        return reply_of(session, priced, [*parts.standing(job, language).said[:1], word("chat.no-capacity", language)])
    sizes = {"needed_bytes": needed, "capacity_bytes": capacity, "room_bytes": abs(capacity - needed)}
    first = word("chat.room-left" if needed <= capacity else "chat.room-none", language, **sizes)
    stands = parts.standing(job, language, plans=needed > capacity).said
    return reply_of(session, priced, [first, *(stands if priced.estimate.served is not None else stands[:2])])


def saved(session: Session, priced: Priced | None, text: str) -> Reply:
    """Which of the changes brought most."""
    steps = []
    prices = [price_of(step.job, session.language)[0] for step in session.steps]
    for step, (old, new) in zip(session.steps[1:], itertools.pairwise(prices), strict=True):
        if old is not None and new is not None and step.changed:
            steps.append((step.changed, old, new))
    if not steps:
        return explained(session.job, text, session.language)
    head = word("chat.steps-head", session.language)
    return reply_of(session, priced, [head, *answers.saved(steps, session.language)])


TOPICS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        "pick": pick,
        "sure": sure,
        "config": written,
        "diff": written,
        "setting": setting,
        "breakdown": breakdown,
        "saved": saved,
        "rate": rate,
        "room": room,
    }
)
"""By what a question is about."""
