"""In which phase of a job it failed, as people say it: the words of a phase near the words of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.patterns import patterns
from oomdoc.intake.phases import phase_table
from oomdoc.intake.polarity import went_well

__all__ = ["phase_of_program", "phase_of_prose"]

_I: Final = re.IGNORECASE | re.ASCII
_RE: Final = patterns(__file__)
_MAX_TEXT: Final = 10_000
_MAX_DISTANCE_CHARS: Final = 60
"""Characters between the words of a phase and those of a failure beyond which they are not of each other."""


def phase_of_prose(text: str, *, engine: bool = True) -> str | None:
    """The phase whose words stand nearest to those of a failure, said with "when", "during", "时" before all others.

    :param engine: whether an engine may be what fails: "when eval starts" is not, where none is named.
    """
    best: tuple[float, str] | None = None
    for sentence in _RE["sentence"].split(text[:_MAX_TEXT]):
        if sentence is None:
            continue
        for weight, phase in _of_sentence(sentence[:600]):
            if (engine or phase != "engine-init") and (best is None or weight > best[0]):
                best = (weight, phase)
    return best[1] if best is not None and best[0] >= _LEAST else None


_LEAST: Final = 0.3


def _of_sentence(sentence: str) -> Iterator[tuple[float, str]]:
    fails = [m.span() for m in _RE["fails"].finditer(sentence)]
    if not fails:
        return
    for rank, (phase, pattern) in enumerate(phase_table("prose")):
        for found in pattern.finditer(sentence):
            start, end = found.span()
            distance = min(max(start - stop, begin - end, 0) for begin, stop in fails)
            if (
                distance > 2 * _MAX_DISTANCE_CHARS
                or _RE["before"].search(sentence[:start])
                or went_well(sentence[end : end + 16])
            ):
                continue
            timed = (
                _RE["at"].search(sentence[max(0, start - 40) : start]) is not None
                or _RE["after"].match(sentence, end) is not None
            )
            if timed or distance <= _MAX_DISTANCE_CHARS:
                yield (2.0 if timed else 1.0) - distance / 100 - rank / 1000, phase


def phase_of_program(text: str) -> str | None:
    """The phase of a program that does nothing else, by its name; of a pasted script that only loads a model."""
    text = text[:_MAX_TEXT]
    for phase, pattern in phase_table("program"):
        if pattern.search(text):
            return phase
    return "load" if "from_pretrained(" in text and not _RE["worked_on"].search(text) else None
