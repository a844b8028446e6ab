"""How a job stands and what a change of it did, in computed sentences, beside what a language model says."""

from __future__ import annotations

from oomdoc.chat import parts
from oomdoc.chat.conversation import price_of
from oomdoc.chat.session import difference
from oomkb.memory.job import Job


def standing(job: Job, language: str) -> list[str]:
    """How the job stands, computed."""
    priced, problem = price_of(job, language)
    short = priced is not None and priced.estimate.fits is False
    return parts.state(priced, problem, job, language) + (parts.planned(priced, language) if priced and short else [])


def change_lines(before: Job, after: Job, language: str) -> list[str]:
    """What a change of the job did, computed."""
    old, _ = price_of(before, language)
    new, problem = price_of(after, language)
    said = [parts.changed_line(difference(before, after), language)]
    if old and new:
        said.append(parts.versus(old.estimate, new.estimate, language))
    return said + parts.state(new, problem, after, language, peak_said=bool(old and new))[:2]
