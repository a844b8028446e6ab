"""The table as it is used at run time: expressions joined, and the literals without which none of them can match."""

from __future__ import annotations

import json
import re
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomkb.dataclass import dataclass
from oomkb.lazy import compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oomdoc.intake.sieve import Vocabulary
    from oomdoc.intake.signs.schema import Row

TABLE: Final = Path(__file__).with_name("table.json")
"""What :func:`written` makes of the rows, so that a cold start parses neither TOML nor expressions."""
_KINDS: Final = ("frames", "messages")
_DIGITS: Final = str.maketrans("", "", "0123456789")


class Matcher:
    """One expression, compiled when a line with one of its literals is first seen."""

    __slots__ = ("_compiled", "_pattern", "literals")

    def __init__(self, pattern: str, literals: Iterable[str]) -> None:
        self._pattern = pattern
        self._compiled: re.Pattern[str] | None = None
        self.literals = tuple((literal, _grams(literal)) for literal in literals)
        """Whatever matches holds one of them, in lower case; with each the pieces that a text must have to hold it."""

    def held(self, words: Vocabulary) -> list[str]:
        """The literals that can be in a text of these words."""
        if words.all:
            return [literal for literal, _ in self.literals]
        grams = words.grams
        return [literal for literal, needed in self.literals if needed <= grams]

    def search(self, lowered: str) -> re.Match[str] | None:
        """The first match in a text in lower case."""
        if self._compiled is None:
            self._compiled = compiled(self._pattern)
        return self._compiled.search(lowered)


def _grams(literal: str) -> frozenset[str]:
    """The pieces of three characters of the longest word, without digits, as a vocabulary holds them."""
    word = max(literal.translate(_DIGITS).split(), key=len, default="")
    return frozenset(word[at : at + 3] for at in range(len(word) - 2))


@dataclass(frozen=True, slots=True)
class Signature:
    """One row: what is looked for, and where."""

    name: str
    frames: Matcher | None = None
    messages: Matcher | None = None
    signals: frozenset[str] = field(default_factory=frozenset)
    phases: frozenset[str] = field(default_factory=frozenset)


@cache
def shipped() -> tuple[Signature, ...]:
    """Every row of ``table.json``."""
    return tuple(_signature(name, entry) for name, entry in json.loads(TABLE.read_bytes()).items())


def table_of(rows: Iterable[Row]) -> tuple[Signature, ...]:
    """Rows that are not in the shipped table.

    :raises ValueError: where an alternative holds no literal to look for first.
    """
    return tuple(_signature(row.name, _entry(row)) for row in rows)


def written(rows: Iterable[Row]) -> str:
    """The text of ``table.json``, a row a line.

    :raises ValueError: where an alternative holds no literal to look for first.
    """
    lines = (f"{json.dumps(row.name)}: {json.dumps(_entry(row))}" for row in rows)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _signature(name: str, entry: Mapping[str, Any]) -> Signature:
    made = {kind: Matcher(*entry[kind]) for kind in _KINDS if kind in entry}
    return Signature(
        name, **made, signals=frozenset(entry.get("signals", ())), phases=frozenset(entry.get("phases", ()))
    )


def _entry(row: Row) -> dict[str, Any]:
    given = {"frames": row.frames, "messages": row.messages}
    entry: dict[str, Any] = {
        kind: ["|".join(patterns), _literals(row.name, patterns)] for kind, patterns in given.items() if patterns
    }
    entry.update({key: list(value) for key, value in (("signals", row.signals), ("phases", row.phases)) if value})
    return entry


def _literals(name: str, patterns: Iterable[str]) -> list[str]:
    from oomdoc.intake.sieve.derive import literals_of

    found: set[str] = set()
    for pattern in patterns:
        literals = literals_of(pattern, 0)
        if not literals:
            raise ValueError(f"{name}: {pattern!r} holds no literal that every match has")
        found.update(literals)
    return sorted(one for one in found if not any(other in one and other != one for other in found))
