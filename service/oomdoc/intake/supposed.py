"""What a report asks beside the failure that it tells of: "It died on one card. Would two with ZeRO-3 be enough?".

What such a sentence names is of another run than the one that failed: it is read apart from the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from oomdoc.evidence import Evidence, Source, Supposed
from oomdoc.intake.asked import asked_in
from oomdoc.intake.patterns import patterns

_RE: Final = patterns(__file__)
_OF_BOTH: Final = ("model", "params_b", "method", "objective")
"""Facts that a question names for the failed run as well where nothing else does."""
_RUN: Final = frozenset({"gpu", "gpu_count", "capacity_gib", "micro_batch", "seq_len", "max_model_len", "zero_stage"})
"""Facts by any of which a run is told of."""
_CHARACTERS: Final = 6_000
"""Characters of prose in which such questions are looked for."""
_MAX_QUESTIONS: Final = 3
"""Questions that are each read as a run of their own."""
_LONGEST: Final = 400
"""Characters of a question."""


def failed(evidence: Evidence) -> bool:
    """Whether the input tells of a run that failed for memory."""
    if evidence.outcome is not None:
        return evidence.outcome.fails and evidence.outcome.kind != "other"
    return evidence.root is not None


def suppositions_in(prose: str) -> tuple[str, ...]:
    """The questions of a report that ask whether another form of its run would do, as they are written."""
    found, start, text = [], 0, prose[:_CHARACTERS]
    for stop in _RE["stop"].finditer(text):
        sentence, start = text[start : stop.end()].strip(), stop.end()
        if stop[0] in "?？" and len(sentence) <= _LONGEST and (supposed := _supposed(sentence)):
            found.append(supposed)
    return tuple(found[:_MAX_QUESTIONS])


def _supposed(text: str) -> str:
    """The part of a question that supposes something; empty where none does."""
    told = [found.end() for found in _RE["tells"].finditer(text)]
    start = told[-1] if told else 0
    begin = _RE["supposes"].search(text, start)
    if (told and begin is None) or _RE["of_the_failure"].search(text, start):
        return ""
    start = begin.start() if begin is not None and told else 0
    return text[start:].lstrip(" ,，") if _RE["would_do"].search(text, start) else ""


def without(sources: Sequence[Source], sentences: Sequence[str]) -> list[Source]:
    """The sources without these sentences; a mark that was read into one is none that stands there."""
    out = []
    for source in sources:
        text = source.text
        for sentence in sentences:
            text = text.replace(sentence if sentence in text else sentence[:-1], "", 1)
        out.append(replace(source, text=text))
    return out


def tells_of_a_run(rest: Evidence) -> bool:
    """Whether what is read without the questions tells of a run that failed."""
    return failed(rest) and not _RUN.isdisjoint(rest.facts)


def with_suppositions(rest: Evidence, whole: Evidence, supposed: Sequence[Supposed]) -> Evidence:
    """What is read without the questions, with what only they name of both runs.

    :param rest: what is read without them.
    :param whole: what is read with them.
    """
    shared = {name: whole.facts[name] for name in _OF_BOTH if name in whole.facts}
    return replace(rest, facts={**shared, **rest.facts}, supposed=tuple(supposed))


def supposed_in(sentence: str, alone: Evidence) -> Supposed:
    """The run that a question supposes.

    :param alone: what is read of the question alone.
    """
    return Supposed(sentence, alone.facts, asked_in(sentence).settings)
