"""How a job stands and what a change of it did, in computed sentences, beside what a language model says."""

from __future__ import annotations

from oomdoc.assistant.provenance import says_size, says_verdict
from oomdoc.chat import parts
from oomdoc.chat.prices import price_of
from oomdoc.chat.session import difference
from oomkb.memory.job import Job
from oomkb.units import GIB


def change_lines(before: Job, after: Job, language: str) -> list[str]:
    """What a change of the job did, computed."""
    old, _ = price_of(before, language)
    new, _ = price_of(after, language)
    said = [parts.changed_line(difference(before, after), language)]
    if old and new:
        said.append(parts.versus(old.estimate, new.estimate, language))
        said += parts.was_assumed(old, difference(before, after), language)
    return [*said, *parts.standing(after, language, plans=False).said[:2]]


def figures_left(before: Job, after: Job, answer: str, language: str) -> list[str]:
    """The figures of a change, computed, where an answer lacks the size that decides or the verdict."""
    estimate = priced.estimate if (priced := price_of(after, language)[0]) else None
    sizes = [estimate.process_bytes, estimate.needed_bytes or 0.0] if estimate is not None else []
    if estimate is not None and estimate.served is not None:
        sizes.append(estimate.served.cache_bytes)
    if any(says_size(answer, size / GIB) for size in sizes) and says_verdict(answer):
        return []
    return change_lines(before, after, language)[1:]
