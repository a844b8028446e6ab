"""Which signs of the table an input shows, each with the place where it shows best."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from oomdoc.evidence import Frame, Sign, Signal, Span
from oomdoc.intake.kinds import Kind
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Vocabulary, candidates
from oomdoc.intake.signs.schema import Row, shipped

_INNERMOST: Final = 24
"""Frames of a traceback that are looked at, counted from the place of failure."""
_CHARACTERS: Final = 400_000
"""Of all lines together: what is printed says the same thing over and over."""
_TRIES: Final = 200
"""Lines with a literal of a row on which its expression is tried."""
_WIDTH: Final = 1_000
"""Characters of a line."""
_SCRIPT: Final = frozenset({"command", "config", "code"})
"""Kinds of lines that tell what is to be run, not where it failed."""
_ASSIGNED: Final = re.compile(r"\s{0,12}[\w., ]{1,60}= ?[\w.]{1,80}\(")
"""A line of a program, which says as little."""


class _Piece(NamedTuple):
    """A line or a frame that is looked at."""

    low: str
    span: Callable[[], Span]


def _first(expression: Expression | None, pieces: Sequence[_Piece], words: Vocabulary) -> Span | None:
    """The place of the first piece that matches."""
    if expression is None:
        return None
    held = islice(candidates(expression, pieces, words), _TRIES)
    return next((piece.span() for piece in held if expression.search(piece.low)), None)


def _bounded(pieces: Iterable[_Piece]) -> list[_Piece]:
    out, characters = [], 0
    for low, span in pieces:
        out.append(_Piece(low[:_WIDTH], span))
        characters += len(out[-1].low) + 1
        if characters > _CHARACTERS:
            break
    return out


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
    shown = (_Piece(line.low, line.span) for line, kind in zip(lines, kinds, strict=True) if kind != "blank")
    printed, traced = _bounded(shown), _bounded(_of_frames(frames) if frames else _unframed(lines, kinds))
    words = words or Vocabulary(piece.low for piece in (*traced, *printed))
    named = {signal.name: signal.span for signal in reversed(signals)}
    out: list[Sign] = []
    for row in shipped() if table is None else table:
        if row.phases and phase not in row.phases:
            continue
        span = _first(row.traced, traced, words) or _first(row.printed, printed, words)
        if span is None and row.signals:
            span = next((named[name] for name in named if name in row.signals), None)
        if span is not None:
            out.append(Sign(row.name, span))
    return tuple(out)


def _of_frames(frames: Sequence[Frame]) -> Iterator[_Piece]:
    """The innermost frames, the place of failure first."""
    for frame in frames[: -_INNERMOST - 1 : -1]:
        low = f"{frame.file} {frame.function} {frame.code}".lower().replace("\n", " ")
        yield _Piece(low, lambda span=frame.span: span)  # type: ignore[misc]


def _unframed(lines: Sequence[Line], kinds: Sequence[Kind]) -> Iterator[_Piece]:
    """Where no traceback was read, the lines that may quote one."""
    for line, kind in zip(lines, kinds, strict=True):
        if kind != "blank" and kind not in _SCRIPT and _ASSIGNED.match(line.low) is None:
            yield _Piece(line.low, line.span)
