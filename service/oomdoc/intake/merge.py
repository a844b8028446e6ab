"""One value per fact: the more specific source wins, and what it overrules is kept as a conflict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from oomdoc.evidence import Conflict, Fact

__all__ = ["merge"]

_SPECIFIC: Final[Mapping[str, int]] = {
    "option": 0,
    "config": 1,
    "command": 1,
    "env": 1,
    "log": 2,
    "code": 2,
    "prose": 3,
}
_MEASURED: Final = frozenset(
    [
        "capacity_gib",
        "tried_gib",
        "allocated_gib",
        "reserved_gib",
        "reserved_unallocated_gib",
        "free_gib",
        "process_gib",
        "other_process_gib",
    ]
)


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
        seen: set[str] = set()
        for other in ranked[1:]:
            if other.stated and _differs(name, best.value, other.value) and repr(other.value) not in seen:
                seen.add(repr(other.value))
                conflicts.append(Conflict(best, other))
    return kept, tuple(conflicts)


def _differs(name: str, a: Any, b: Any) -> bool:
    """Whether two values cannot both be meant: "80 GB" on the box and 79.33 GiB in the log can."""
    if isinstance(a, bool) or isinstance(b, bool):
        return bool(a) != bool(b)
    if isinstance(a, int | float) and isinstance(b, int | float):
        room = 0.09 if name in _MEASURED else 0.0
        return abs(a - b) > room * max(abs(a), abs(b))
    if isinstance(a, str) and isinstance(b, str):
        x, y = (("".join(c for c in s.lower() if c.isalnum())) for s in (a, b))
        return not (x in y or y in x)
    return bool(a != b)
