"""Which framework a piece of configuration belongs to, and how sure that is.

The candidate is the table with the most evidence: what is run or imported, the keys that only this framework has, those
it has among others. How probable it is then follows from the marks, from the share of the piece's keys that the table
knows, and from how many there are: a forced guess knows few of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from typing import Final

from oomdoc.intake.configs.table import Table
from oomkb.dataclass import dataclass

__all__ = ["ENOUGH", "MIN_SCORE", "Recognition", "candidates", "probability_of", "recognise"]

_COMMAND_WEIGHT: Final = 12
_MARK_WEIGHT: Final = 4
MIN_SCORE: Final = 2
"""Evidence below which no table is a candidate."""
_MAX_CANDIDATES: Final = 4
ENOUGH: Final = 0.5
"""Probability below which a piece's framework is unknown."""
_BIAS: Final = -4.5
_COMMAND: Final = 2.0
_MARK: Final = 0.35
_MAX_MARKS: Final = 8
_SHARE: Final = 8.0
"""Weights of a logistic regression on 1,250 example files of 8 frameworks that have a table and of 20 other projects
(each project weighing alike): at a half it keeps 97 % of those rightly recognised and 19 of 200 forced ones."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """The table that fits best, whether a program or key of its own speaks for it, and how many."""

    table: Table
    command: bool
    marks: int


@cache
def _patterns(table_name: str) -> tuple[re.Pattern[str], ...]:
    from oomdoc.intake.configs.registry import table

    found = table(table_name)
    return tuple(re.compile(c) for c in found.commands) if found is not None else ()


@lru_cache(maxsize=1024)
def _runs(table_name: str, programs: str) -> bool:
    """Whether a program of a framework's own is run; asked anew after each change that a patch makes."""
    return any(p.search(programs) for p in _patterns(table_name))


def _evidence(table: Table, keys: frozenset[str], programs: str) -> tuple[int, int]:
    """Programs and keys of the table's own; with one of them, what speaks for its bases speaks for it too."""
    commands = int(bool(programs) and _runs(table.name, programs))
    marks = len(table.marks & keys)
    if table.own_prefixes:
        marks += sum(1 for key in keys if key.startswith(table.own_prefixes))
    if commands or marks:
        marks += len((keys & table.base_marks()) - table.marks)
    return commands, marks


def _score(table: Table, keys: frozenset[str], programs: str) -> tuple[int, int]:
    commands, marks = _evidence(table, keys, programs)
    own = commands * _COMMAND_WEIGHT + marks * _MARK_WEIGHT
    if table.bases and not own:
        return 0, 0
    return own + len(table.hints & keys), own


def recognise(
    keys: Iterable[str], programs: str, tables: Sequence[Table], likely: str | None = None
) -> Recognition | None:
    """The table that fits best, or ``None`` where nothing speaks for any.

    :param keys: normalised keys, nested ones both whole and by their last part.
    :param programs: what is run, imported and called, as text (bounded by the caller).
    :param likely: the framework of what surrounds it, which wins where the evidence is no better for another.
    """
    return next(iter(candidates(keys, programs, tables, likely)), None)


def candidates(
    keys: Iterable[str], programs: str, tables: Sequence[Table], likely: str | None = None
) -> list[Recognition]:
    """As :func:`recognise`, those for which there is some evidence, best first."""
    found, programs = frozenset(keys), programs if programs.strip() else ""
    scored: list[tuple[int, int, int, Table]] = []
    for place, table in enumerate(tables):
        score, own = _score(table, found, programs)
        if table.name == likely and score:
            score, own = score + 2, own + 2
        if score >= MIN_SCORE:
            scored.append((score, own, -place, table))
    scored.sort(key=lambda entry: entry[:3], reverse=True)
    chosen = [entry[3] for entry in scored[:_MAX_CANDIDATES]]
    chosen[:1] = [_most_derived(table, found, programs, tables) for table in chosen[:1]]
    evidence = [(table, *_evidence(table, found, programs)) for table in chosen]
    return [Recognition(table, commands > 0, marks) for table, commands, marks in evidence]


def _most_derived(base: Table, keys: frozenset[str], programs: str, tables: Sequence[Table]) -> Table:
    """What is run or imported of a framework built on ``base`` outweighs what it takes from the base."""
    built = [
        (*_score(t, keys, programs), t) for t in tables if any(b is base for b in t.bases) and _runs(t.name, programs)
    ]
    return max(built, key=lambda entry: entry[:2])[2] if built else base


def probability_of(found: Recognition, known: Collection[bool]) -> float:
    """How probable the candidate is, 0..1.

    :param known: for each of the piece's keys, whether the table knows it.
    """
    share = (sum(known) + 1.0) / (len(known) + 2.0)
    odds = _BIAS + _COMMAND * found.command + _MARK * min(found.marks, _MAX_MARKS) + _SHARE * share
    return 1.0 / (1.0 + math.exp(-odds))
