"""Which signs of the table an input shows, each with the place where it shows best."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from oomdoc.evidence import Frame, Sign, Signal, Span
from oomdoc.intake.kinds import Kind
from oomdoc.intake.lines import Line
from oomdoc.intake.signs.table import Matcher, Signature, signatures

__all__ = ["read_signs"]

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
        lows: list[str] = []
        self._spans: list[Callable[[], Span]] = []
        self._starts: list[int] = []
        at = 0
        for low, span in pieces:
            low = low[:_WIDTH]
            lows.append(low)
            self._starts.append(at)
            self._spans.append(span)
            at += len(low) + 1
            if at > _CHARACTERS:
                break
        self._low = "\n".join(lows)

    def first(self, matcher: Matcher) -> Span | None:
        """The place of the first line that matches."""
        low = self._low
        hits = {
            number
            for literal in matcher.literals
            if literal in low
            for number in islice(self._holding(literal), _TRIES)
        }
        for number in sorted(hits)[:_TRIES]:
            start = self._starts[number]
            end = self._starts[number + 1] - 1 if number + 1 < len(self._starts) else len(low)
            if matcher.search(low[start:end]) is not None:
                return self._spans[number]()
        return None

    def _holding(self, literal: str) -> Iterable[int]:
        """Numbers of the lines that hold a literal."""
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
    table: Sequence[Signature] | None = None,
) -> tuple[Sign, ...]:
    """The signs that an input shows, in the order of the table, each once.

    :param kinds: one per line.
    :param frames: the traceback of the failure to explain, outermost first; where it has none, of the whole input.
    :param signals: what the parsers recognised.
    :param phase: the phase in which it failed.
    :param table: other rows than the shipped ones.
    """
    printed = _Text((line.low, line.span) for line, kind in zip(lines, kinds, strict=True) if kind != "blank")
    traced = _Text(_of_frames(frames) if frames else _unframed(lines, kinds))
    named = {signal.name: signal.span for signal in reversed(signals)}
    out: list[Sign] = []
    for row in signatures() if table is None else table:
        if row.phases and phase not in row.phases:
            continue
        span = traced.first(row.frames) if row.frames is not None else None
        if span is None and row.messages is not None:
            span = printed.first(row.messages)
        if span is None:
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
