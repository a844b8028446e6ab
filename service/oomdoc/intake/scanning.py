"""Runs the parsers over the lines that hold one of their triggers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from oomdoc.evidence import Failure
from oomdoc.intake.lines import Line
from oomdoc.intake.logs import PARSERS
from oomdoc.intake.logs.rules import Parser, Reading, Window
from oomdoc.intake.sieve import Sieve, Vocabulary

_MAX_TRIES = 600
"""Lines per family that are read: the first ones say what happened; growth needs some, not thousands."""

_FIRST_OF_MANY = 2
_REACH = 50
"""Lines that are tried for the last reading of a family that repeats."""

Found = tuple[int, Parser, Reading]
"""Line index, parser, what it read there."""


_SIEVE: Final = Sieve((parser.triggers, parser) for parser in PARSERS)


def scan(lines: Sequence[Line], words: Vocabulary) -> Iterator[Found]:
    """What every parser reads, in order of lines; at one line, one failure: of the family that goes first.

    :param words: the vocabulary of the lines: only triggers that it holds are looked for.
    """
    scanner = _Scanner(lines)
    for index, _, parsers in _SIEVE.over(lines, words):
        yield from scanner.at(index, parsers)
    yield from scanner.repeated()


class _Scanner:
    """Parses lines; what only repeats is put off until a failure (or the end) asks for the last of it."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.tried: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self.put_off: dict[str, tuple[Parser, deque[int]]] = {}

    def at(self, index: int, chosen: Sequence[Parser]) -> Iterator[Found]:
        """What the chosen parsers read at a line; one that is of a family which repeats and was read is put off."""
        parser = chosen[0]
        if len(chosen) == 1 and parser.repeats and self.read.get(parser.name, 0) >= _FIRST_OF_MANY:
            self.put_off.setdefault(parser.name, (parser, deque(maxlen=_REACH)))[1].append(index)
            return
        found = list(self._parsed(index, chosen))
        if any(reading.failures for _, _, reading in found):
            yield from self.repeated()
        yield from found

    def _parsed(self, index: int, chosen: Sequence[Parser]) -> Iterator[Found]:
        window, failed = Window(self.lines, index), False
        for parser in sorted(chosen, key=lambda one: (one.priority, one.name)):
            if self.tried.get(parser.name, 0) >= _MAX_TRIES:
                continue
            self.tried[parser.name] = self.tried.get(parser.name, 0) + 1
            if (reading := parser.parse(window)) is None:
                continue
            self.read[parser.name] = self.read.get(parser.name, 0) + 1
            self.put_off.pop(parser.name, None)
            if failed and reading.failures:
                reading = replace(reading, failures=())
            failed = failed or bool(reading.failures)
            yield index, parser, reading

    def repeated(self) -> Iterator[Found]:
        """The last reading of each family that was put off."""
        last: list[Found] = []
        for parser, indexes in self.put_off.values():
            readings = ((i, parser.parse(Window(self.lines, i))) for i in reversed(indexes))
            last += [(i, parser, r) for i, r in islice(((i, r) for i, r in readings if r is not None), 1)]
        self.put_off.clear()
        yield from sorted(last, key=lambda found: found[0])


def failures_of(found: Sequence[Found]) -> list[tuple[int, Failure]]:
    """The failures with the index of their line, in order."""
    return [(index, failure) for index, _, reading in found for failure in reading.failures]
