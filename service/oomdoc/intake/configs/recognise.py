"""Which framework a piece of configuration belongs to: by what it runs, and by the keys only that framework has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from oomdoc.intake.configs.table import Table

__all__ = ["recognise"]

_COMMAND_WEIGHT: Final = 12
_MARK_WEIGHT: Final = 4
_ENOUGH: Final = 2


@cache
def _patterns(table_name: str) -> tuple[re.Pattern[str], ...]:
    from oomdoc.intake.configs.registry import table

    found = table(table_name)
    return tuple(re.compile(c) for c in found.commands) if found is not None else ()


def _score(table: Table, keys: frozenset[str], programs: str) -> tuple[int, int]:
    commands = sum(1 for p in _patterns(table.name) if p.search(programs)) if programs.strip() else 0
    marks = len(table.marks & keys)
    if table.own_prefixes:
        marks += sum(1 for key in keys if key.startswith(table.own_prefixes))
    hints = len(table.hints & keys)
    own = commands * _COMMAND_WEIGHT + marks * _MARK_WEIGHT
    if table.bases and not own:
        return 0, 0
    return own + hints, own


def recognise(keys: Iterable[str], programs: str, tables: Sequence[Table], likely: str | None = None) -> Table | None:
    """The table that fits best, or ``None`` where nothing speaks for any.

    :param keys: normalised keys, nested ones both whole and by their last part.
    :param programs: what is run, imported and called, as text (bounded by the caller).
    :param likely: the framework of what surrounds it, which wins where the evidence is no better for another.
    """
    found = frozenset(keys)
    best: tuple[int, int, Table] | None = None
    for table in tables:
        score, own = _score(table, found, programs)
        if table.name == likely and score:
            score, own = score + 2, own + 2
        if score >= _ENOUGH and (best is None or (score, own) > best[:2]):
            best = (score, own, table)
    return _most_derived(best[2], found, programs, tables) if best is not None else None


def _most_derived(base: Table, keys: frozenset[str], programs: str, tables: Sequence[Table]) -> Table:
    """What is run or imported of a framework built on ``base`` outweighs what it takes from the base."""
    built = [
        (*_score(t, keys, programs), t)
        for t in tables
        if any(b is base for b in t.bases) and any(p.search(programs) for p in _patterns(t.name))
    ]
    return max(built, key=lambda entry: entry[:2])[2] if built else base
