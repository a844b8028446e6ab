"""Runs the parsers over the lines that hold one of their triggers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from oomdoc.evidence import Failure
from oomdoc.intake.lines import Line
from oomdoc.intake.logs import PARSERS
from oomdoc.intake.logs.base import Parser, Reading, Window
from oomdoc.intake.sieve import Vocabulary

__all__ = ["Found", "failures_of", "scan"]

_MOST_TRIES = 600
"""Lines per family that are read: the first ones say what happened; growth needs some, not thousands."""

Found = tuple[int, Parser, Reading]
"""Line index, parser, what it read there."""


@cache
def _by_trigger() -> dict[str, tuple[Parser, ...]]:
    table: dict[str, tuple[Parser, ...]] = {}
    for parser in PARSERS:
        for word in parser.triggers:
            table[word] = (*table.get(word, ()), parser)
    return table


def scan(lines: Sequence[Line], words: Vocabulary) -> Iterator[Found]:
    """What every parser reads, in order of lines; at one line, one failure: of the family that goes first.

    :param words: the vocabulary of the lines: only triggers that it holds are looked for.
    """
    table = _by_trigger()
    present = [word for word in table if words.may_hold(word)]
    if not present:
        return
    tried: dict[str, int] = {}
    for index, line in enumerate(lines):
        low = line.low if line.text is line.raw else line.text.lower()
        held = [word for word in present if word in low]
        if not held:
            continue
        chosen = {parser.name: parser for word in held for parser in table[word]}
        window, failed = Window(lines, index), False
        for parser in sorted(chosen.values(), key=lambda p: (p.priority, p.name)):
            if tried.get(parser.name, 0) >= _MOST_TRIES:
                continue
            tried[parser.name] = tried.get(parser.name, 0) + 1
            if (reading := parser.parse(window)) is None:
                continue
            if failed and reading.failures:
                reading = replace(reading, failures=())
            failed = failed or bool(reading.failures)
            yield index, parser, reading


def failures_of(found: Sequence[Found]) -> list[tuple[int, Failure]]:
    """The failures with the index of their line, in order."""
    return [(index, failure) for index, _, reading in found for failure in reading.failures]
