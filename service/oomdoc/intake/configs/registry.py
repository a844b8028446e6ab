"""Looking tables up by name, and what they know together."""

from __future__ import annotations

from functools import cache

from oomdoc.intake.configs.declared import declared_tables
from oomdoc.intake.configs.table import Table
from oomkb.frameworks import canonical

TABLES: tuple[Table, ...] = declared_tables()
"""One per framework, in the order of their names."""


def tables() -> tuple[Table, ...]:
    """Every table."""
    return TABLES


@cache
def table(name: str | None) -> Table | None:
    """The table of a framework, by any of its names."""
    known = canonical(name) or name
    return next((t for t in tables() if t.name == known), None)


@cache
def all_names() -> frozenset[str]:
    """Every key that any table reads, whole and by its last part."""
    names = {n for t in tables() for n in (*t.names(), *t.marks, *t.hints)}
    return frozenset(names | {n.rsplit(".", 1)[-1].rsplit(":", 1)[-1] for n in names})
