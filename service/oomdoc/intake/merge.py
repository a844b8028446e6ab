"""One value per fact: the more specific source wins, and what it overrules is kept as a conflict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from oomdoc.evidence import Conflict, Fact
from oomdoc.intake.agreement import conflict, differ

_SPECIFIC: Final[Mapping[str, int]] = {
    "option": 0,
    "config": 1,
    "command": 1,
    "env": 1,
    "log": 2,
    "code": 2,
    "prose": 3,
}
_MAX_VALUES: Final = 4
"""Further values kept for one fact."""


def merge(facts: Iterable[Fact]) -> tuple[dict[str, Fact], tuple[Conflict, ...]]:
    """The kept fact of every name, and the conflicts.

    Surest first; of equals the more specific origin (an option, a setting, a log, prose), of those the first read.
    """
    kept: dict[str, Fact] = {}
    rivals: dict[str, list[Fact]] = {}
    for fact in facts:
        rivals.setdefault(fact.name, []).append(fact)
    conflicts: list[Conflict] = []
    for name, several in rivals.items():
        ranked = sorted(several, key=lambda f: (f.origin != "option", -f.confidence, _SPECIFIC[f.origin]))
        best = ranked[0]
        kept[name] = best
        seen: list[Any] = []
        for other in ranked[1:]:
            found = conflict(best, other)
            if found is not None and len(seen) < _MAX_VALUES and all(differ(name, other.value, v) for v in seen):
                seen.append(other.value)
                conflicts.append(found)
    return kept, tuple(conflicts)
