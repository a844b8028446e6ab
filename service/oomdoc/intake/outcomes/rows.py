"""The closed list of what a text can show: one file ``<id>.toml`` a kind, read and checked here.

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
from dataclasses import fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Literal, get_args

from oomkb.dataclass import dataclass
from oomkb.lazy import compiled
from oomkb.toml_files import read_toml

Kind = Literal["device", "host", "shared-memory", "engine", "said", "question", "healthy", "other"]
Order = Literal["root", "follows", "generic", "unnamed"]
Memory = Literal["device", "host", "shared-memory"]

_REPEAT: Final = re.compile(r"(?<!\\)[*+](?!\?)|\{\d{0,4},\}")
"""A repetition without an end: not allowed in a pattern that reads untrusted lines."""
_LISTS: Final = ("triggers", "patterns", "unless", "signals", "lines", "not_lines", "source")
_THREADS: Final = 3


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
    return tuple(row_from(file.name, read_toml(file)) for file in sorted(Path(__file__).parent.glob("*.toml")))


@cache
def row_of(identifier: str) -> Row:
    """The kind of that name."""
    return next(row for row in rows() if row.id == identifier)


def row_from(name: str, table: Mapping[str, Any]) -> Row:
    """The row of a file's table.

    :raises ValueError: where the file breaks the schema; says where and how.
    """
    known = {f.name for f in fields(Row)}
    if unknown := table.keys() - known:
        raise ValueError(f"{name}: unknown keys {sorted(unknown)}")
    for key in ("id", "kind", "lines", "not_lines", "source"):
        if not table.get(key):
            raise ValueError(f"{name}: {key} is missing or empty")
    values: dict[str, Any] = {k: tuple(v) if k in _LISTS else v for k, v in table.items()}
    row = Row(**values)
    problems = [
        (row.id == name.removesuffix(".toml"), "id is not the file's name"),
        (row.kind in get_args(Kind), f"kind {row.kind!r}"),
        (row.order in get_args(Order), f"order {row.order!r}"),
        (row.memory is None or row.memory in get_args(Memory), f"memory {row.memory!r}"),
        ((row.memory is not None) == (row.kind == "said"), "memory goes with kind said"),
        (bool(row.patterns) == bool(row.triggers), "patterns go with triggers"),
        (all(t == t.lower() for t in row.triggers), "triggers are in lower case"),
        (not any(_REPEAT.search(p) for p in (*row.patterns, *row.unless)), "a repetition without an end"),
        (
            any(not s.startswith("https://") for s in row.source) or len(row.source) >= _THREADS,
            "neither a program's file nor three threads",
        ),
    ]
    for holds, problem in problems:
        if not holds:
            raise ValueError(f"{name}: {problem}")
    return row
