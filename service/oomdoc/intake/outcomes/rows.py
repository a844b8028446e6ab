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
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from oomkb.dataclass import dataclass
from oomkb.kept import compiled
from oomkb.tables import read_toml

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
