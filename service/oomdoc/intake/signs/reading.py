"""Which signs of the table an input shows, each with the place where it shows best."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from oomdoc.evidence import Frame, Sign, Signal, Span
from oomdoc.intake.kinds import Kind
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Vocabulary
from oomdoc.intake.signs.schema import Row, shipped

_INNERMOST: Final = 24
"""Frames of a traceback that are looked at, counted from the place of failure."""
_CHARACTERS: Final = 400_000
"""Of all lines together: what is printed says the same thing over and over."""
_TRIES: Final = 40
"""Lines with a literal of a row on which its expression is tried."""
_WIDTH: Final = 1_000
"""Characters of a line."""
_SCRIPT: Final = frozenset({"command", "config", "code"})
"""Kinds of lines that tell what is to be run, not where it failed."""
_ASSIGNED: Final = re.compile(r"\s{0,12}[\w., ]{1,60}= ?[\w.]{1,80}\(")
"""A line of a program, which says as little."""


class _Text:
    """Lines in lower case as one text, and the place of each."""

    def __init__(self, pieces: Iterable[tuple[str, Callable[[], Span]]]) -> None:
        self.lows: list[str] = []
        self._spans: list[Callable[[], Span]] = []
        self._starts: list[int] = []
        at = 0
        for whole, span in pieces:
            low = whole[:_WIDTH]
            self.lows.append(low)
            self._starts.append(at)
            self._spans.append(span)
            at += len(low) + 1
            if at > _CHARACTERS:
                break
        self._low = "\n".join(self.lows)

    def first(self, expression: Expression | None, words: Vocabulary) -> Span | None:
        """The place of the first line that matches."""
        if expression is None:
            return None
        best = len(self.lows)
        for literal in expression.literals:
            for number in islice(self._holding(literal), _TRIES) if words.may_hold(literal) else ():
                if number >= best:
                    break
                if expression.search(self.lows[number]) is not None:
                    best = number
        return self._spans[best]() if best < len(self.lows) else None

    def _holding(self, literal: str) -> Iterator[int]:
        """Numbers of the lines that hold a literal, in their order."""
        at = self._low.find(literal)
        while at >= 0:
            number = bisect_right(self._starts, at) - 1
            yield number
            if number + 1 == len(self._starts):
                return
            at = self._low.find(literal, self._starts[number + 1])


def read_signs(
    lines: Sequence[Line],
    kinds: Sequence[Kind],
    frames: Sequence[Frame],
    signals: Sequence[Signal],
    phase: str = "unknown",
    words: Vocabulary | None = None,
    table: Sequence[Row] | None = None,
) -> tuple[Sign, ...]:
    """The signs that an input shows, in the order of the table, each once.

    :param kinds: one per line.
    :param frames: the traceback of the failure to explain, outermost first; where it has none, of the whole input.
    :param signals: what the parsers recognised.
    :param phase: the phase in which it failed.
    :param words: the words of all lines, where they are known already.
    :param table: other rows than the shipped ones.
    """
    printed = _Text((line.low, line.span) for line, kind in zip(lines, kinds, strict=True) if kind != "blank")
    traced = _Text(_of_frames(frames) if frames else _unframed(lines, kinds))
    words = words or Vocabulary((*traced.lows, *printed.lows))
    named = {signal.name: signal.span for signal in reversed(signals)}
    out: list[Sign] = []
    for row in shipped() if table is None else table:
        if row.phases and phase not in row.phases:
            continue
        span = traced.first(row.traced, words) or printed.first(row.printed, words)
        if span is None and row.signals:
            span = next((named[name] for name in named if name in row.signals), None)
        if span is not None:
            out.append(Sign(row.name, span))
    return tuple(out)


def _of_frames(frames: Sequence[Frame]) -> Iterable[tuple[str, Callable[[], Span]]]:
    """The innermost frames, the place of failure first."""
    for frame in frames[: -_INNERMOST - 1 : -1]:
        low = f"{frame.file} {frame.function} {frame.code}".lower().replace("\n", " ")
        yield low, lambda span=frame.span: span  # type: ignore[misc]


def _unframed(lines: Sequence[Line], kinds: Sequence[Kind]) -> Iterable[tuple[str, Callable[[], Span]]]:
    """Where no traceback was read, the lines that may quote one."""
    for line, kind in zip(lines, kinds, strict=True):
        if kind != "blank" and kind not in _SCRIPT and _ASSIGNED.match(line.low) is None:
            yield line.low, line.span
