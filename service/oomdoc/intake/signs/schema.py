"""How a row of the sign tables is written, and what is checked of it.

A file is named after a cause of the taxonomy; each of its tables is a sign::

    [loss-function]
    frames = ["cross_entropy", "log_?softmax"]
    lines = ["torch/nn/functional.py cross_entropy return torch._C._nn.cross_entropy_loss(input, target)"]
    not_lines = ["modeling.py forward loss = binary_cross_entropy(scores, labels)"]
    source = "torch/nn/functional.py 2.1: cross_entropy, log_softmax"

A row matches by one or more of ``frames`` (expressions over ``file function code`` of a frame), ``messages`` (over
lines: what a program prints, or the key or call that configures it) and ``signals`` (names of what the parsers of
``intake/logs`` recognise). Each list holds alternatives, over text in lower case. As people quote programs in the
middle of their sentences, a message is tried on every line and must be such that nobody but a program, or somebody
who quotes one, writes it. ``phases`` narrows a row to failures in these phases.

Its witnesses are ``threads``, at least three public ones, or ``source``, the program, its file and version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from oomdoc.evidence import Frame, Sign, Signal, Span
from oomdoc.intake.lines import Kind, Line
from oomdoc.intake.sieve import Expression, Vocabulary, candidates
from oomkb.dataclass import dataclass
from oomkb.kept import lazy
from oomkb.tables import read_toml

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
_ASSIGNED: Final = lazy(r"\s{0,12}[\w., ]{1,60}= ?[\w.]{1,80}\(")
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


_PATTERNS: Final = ("frames", "messages")
_LISTS: Final = (*_PATTERNS, "signals", "phases", "lines", "not_lines", "threads")
_ID: Final = lazy(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


class RowError(ValueError):
    """A row that is not written as the schema says; the message names file and row."""


@dataclass(frozen=True)
class Row:
    """One sign, as its file has it."""

    cause: str
    id: str
    frames: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    not_lines: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    source: str = ""

    @property
    def name(self) -> str:
        """``<cause>/<id>``."""
        return f"{self.cause}/{self.id}"

    @property
    def patterns(self) -> tuple[str, ...]:
        """All expressions of the row."""
        return self.frames + self.messages

    @cached_property
    def traced(self) -> Expression | None:
        """What is looked for in frames; like every expression here, over text in lower case."""
        return Expression("|".join(self.frames)) if self.frames else None

    @cached_property
    def printed(self) -> Expression | None:
        """What is looked for in lines."""
        return Expression("|".join(self.messages)) if self.messages else None


@cache
def shipped() -> tuple[Row, ...]:
    """Every row of every file, in the order of files and rows; what a row says of itself is checked by its tests.

    :raises RowError: where a row has a key that is not known, or a value of another type.
    """
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return tuple(row for file in files for row in _of_file(file.stem, read_toml(file)))


def _of_file(cause: str, tables: Mapping[str, Any]) -> Iterator[Row]:
    for name, table in tables.items():
        if not isinstance(table, dict) or _ID.fullmatch(name) is None:
            raise RowError(f"{cause}/{name}: not a table with a name of lower-case words and hyphens")
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key in _LISTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
                values[key] = tuple(value)
            elif key == "source" and isinstance(value, str):
                values[key] = value
            else:
                raise RowError(f"{cause}/{name}: {key} is not known, or not of its type")
        yield Row(cause, name, **values)
