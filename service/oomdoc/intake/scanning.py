"""Runs the parsers over the lines that hold one of their triggers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from oomdoc.evidence import Failure
from oomdoc.intake.lines import Line
from oomdoc.intake.logs import PARSERS
from oomdoc.intake.logs.base import Parser, Reading, Window

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


@lru_cache(maxsize=64)
def _any_of(words: frozenset[str]) -> re.Pattern[str]:
    """One expression for several literals, longest first."""
    return re.compile("|".join(re.escape(word) for word in sorted(words, key=lambda w: (-len(w), w))))


def scan(lines: Sequence[Line]) -> Iterator[Found]:
    """What every parser reads, in order of lines; at one line, one failure: of the family that goes first.

    One literal search over the whole text tells which triggers occur at all; only those are looked for in lines.
    """
    table = _by_trigger()
    lowered = [line.text.lower() for line in lines]
    whole = "\n".join(lowered)
    present = frozenset(word for word in table if word in whole)
    if not present:
        return
    tried: dict[str, int] = {}
    pattern = _any_of(present)
    for index, low in enumerate(lowered):
        if not pattern.search(low):
            continue
        chosen = {parser.name: parser for word in present if word in low for parser in table[word]}
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
