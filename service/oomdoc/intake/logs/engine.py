"""Runs the parsers over the lines that hold one of their triggers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from oomdoc.evidence import Failure
from oomdoc.intake.lines import Line
from oomdoc.intake.logs import PARSERS
from oomdoc.intake.logs.base import Parser, Reading, Window

__all__ = ["Found", "scan", "triggers"]

_MOST_HITS = 400
"""Lines per parser that are read: the first ones say what happened; growth needs more than one, not thousands."""

Found = tuple[int, Parser, Reading]
"""Line index, parser, what it read there."""


@cache
def triggers() -> re.Pattern[str]:
    """Every parser's triggers as one alternation, longest first."""
    words = sorted({word for parser in PARSERS for word in parser.triggers}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)))


@cache
def _by_trigger() -> dict[str, tuple[Parser, ...]]:
    table: dict[str, tuple[Parser, ...]] = {}
    for parser in PARSERS:
        for word in parser.triggers:
            table[word] = (*table.get(word, ()), parser)
    return table


def scan(lines: Sequence[Line]) -> Iterator[Found]:
    """What every parser reads, in order of lines; at one line, one failure per kind: the family that goes first."""
    counts: dict[str, int] = {}
    pattern, table = triggers(), _by_trigger()
    for index, line in enumerate(lines):
        words = set(pattern.findall(line.text.lower()))
        if not words:
            continue
        # A trigger that is part of a longer one is not found on its own by an alternation.
        chosen = {p.name: p for word in words for key, ps in table.items() if key in word for p in ps}
        window, failed = Window(lines, index), False
        for parser in sorted(chosen.values(), key=lambda p: (p.priority, p.name)):
            if counts.get(parser.name, 0) >= _MOST_HITS or (reading := parser.parse(window)) is None:
                continue
            counts[parser.name] = counts.get(parser.name, 0) + 1
            if failed and reading.failures:
                reading = replace(reading, failures=())
            failed = failed or bool(reading.failures)
            yield index, parser, reading


def failures_of(found: Sequence[Found]) -> list[tuple[int, Failure]]:
    """The failures with the index of their line, in order."""
    return [(index, failure) for index, _, reading in found for failure in reading.failures]
