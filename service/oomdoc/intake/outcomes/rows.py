"""The closed list of what a text can show: one file ``<id>.toml`` a kind, read here and checked by its tests.

A file holds ``id`` (its name), ``kind`` (of :class:`~oomdoc.evidence.Outcome`), ``triggers`` (literals in lower case,
one of which a line must hold), ``patterns`` (case-insensitive), ``unless`` (patterns of lines that do not count),
``lines`` that match, ``not_lines`` that must not, and ``source``: the program's file and version, or three threads.
Of memory that a parser of ``intake/logs`` recognises, ``signals`` names the parser's signals instead (none: every one
that no other file names). ``order`` says what explains what: a ``root`` failure explains one that ``follows``;
``generic`` names any error, ``unnamed`` only that there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Literal

from oomdoc.evidence import Outcome, Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomkb.dataclass import dataclass
from oomkb.kept import compiled
from oomkb.tables import read_toml

_RE: Final = patterns(__file__)
_MAX_CHARS, _MAX_TRIED = 2000, 400
_CACHE_MADE: Final = frozenset({"vllm-kv-cache-memory", "vllm-concurrency", "vllm-blocks", "sglang-slots"})
"""What an engine prints once its cache is on the card."""


def of_engine_that_runs(outcome: Outcome | None, signals: Sequence[Signal], prose: Sequence[Line]) -> Outcome | None:
    """The outcome; where an engine's log shows its cache made and nothing failed, what it is said to hold is its share.

    Words for growth over time stay a complaint: the share does not grow. A question behind figures that a person
    measured is one, whatever else is said.
    """
    if outcome is None or outcome.name not in ("said-growth", "complaint"):
        return outcome
    asks = any("?" in line.text or "？" in line.text for line in prose)
    parts = any(signal.name == "size-beside" and "fixed_bytes" in signal.data for signal in signals)
    on_a_line = sum(signal.name == "held-at" for signal in signals) + parts > 1
    measured = any(signal.name == "worked-at" and signal.data.get("measured") for signal in signals)
    if asks and (on_a_line or (outcome.name == "complaint" and measured)):
        return Outcome("question", "memory-question", outcome.span, None, 0.8)
    if outcome.memory == "host" or not any(signal.name in _CACHE_MADE for signal in signals):
        return outcome
    grows = any(_RE["over_time"].search(line.text[:_MAX_CHARS]) for line in prose[:_MAX_TRIED])
    return outcome if grows else Outcome("healthy", "healthy", outcome.span, None, 0.8)


Kind = Literal["device", "host", "shared-memory", "engine", "said", "question", "healthy", "other"]
Order = Literal["root", "follows", "generic", "unnamed"]
Memory = Literal["device", "host", "shared-memory"]


@dataclass(frozen=True)
class Row:
    """One kind of outcome."""

    id: str
    kind: Kind
    order: Order = "root"
    memory: Memory | None = None
    triggers: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    window: bool = False
    """Whether what matches is copied from a program's window: printed, though in no line of a log."""
    signals: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    not_lines: tuple[str, ...] = ()
    source: tuple[str, ...] = ()

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return compiled("|".join(self.patterns), re.IGNORECASE | re.ASCII)

    @cached_property
    def _excluded(self) -> re.Pattern[str] | None:
        return compiled("|".join(self.unless), re.IGNORECASE) if self.unless else None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Every place of a line that shows it."""
        if self._excluded is None or self._excluded.search(text) is None:
            yield from self._compiled.finditer(text)


@cache
def rows() -> tuple[Row, ...]:
    """Every kind, in the order of the names."""
    return tuple(_row(read_toml(file)) for file in sorted(Path(__file__).parent.glob("*.toml")))


def _row(table: Mapping[str, Any]) -> Row:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Row(**values)


@cache
def row_of(identifier: str) -> Row:
    """The kind of that name."""
    return next(row for row in rows() if row.id == identifier)
