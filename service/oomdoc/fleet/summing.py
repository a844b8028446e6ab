"""Summing up a fleet: by cause, framework and team; the same failure counted once per fingerprint."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from oomkb.dataclass import dataclass

__all__ = ["Group", "Summary", "summarise"]


@dataclass(frozen=True, slots=True)
class Group:
    """Failures that are the same."""

    fingerprint: str
    count: int
    cause: str | None
    framework: str | None
    model: str | None
    example: str
    fix: str | None
    wasted_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A fleet's failures on one screen."""

    logs: int
    failures: int
    unreadable: int
    wasted_gib: float
    by_cause: dict[str, int]
    by_framework: dict[str, int]
    by_team: dict[str, int]
    groups: tuple[Group, ...]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "schema": "oomdoc.fleet/1",
            "logs": self.logs,
            "failures": self.failures,
            "unreadable": self.unreadable,
            "wasted_gib": round(self.wasted_gib, 1),
            "by_cause": self.by_cause,
            "by_framework": self.by_framework,
            "by_team": self.by_team,
            "groups": [
                {
                    "fingerprint": g.fingerprint,
                    "count": g.count,
                    "cause": g.cause,
                    "framework": g.framework,
                    "model": g.model,
                    "example": g.example,
                    "fix": g.fix,
                    "wasted_gib": round(g.wasted_gib, 1),
                }
                for g in self.groups
            ],
        }


def summarise(rows: Iterable[dict[str, Any]]) -> Summary:
    """Sum up rows; of a log that was diagnosed twice (it had grown) the later row counts."""
    latest = {row["log"]: row for row in rows}
    failed = [r for r in latest.values() if r.get("cause") and r.get("verdict") not in (None, "no-failure")]
    groups: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in failed:
        groups[str(row.get("fingerprint"))].append(row)
    return Summary(
        logs=len(latest),
        failures=len(failed),
        unreadable=sum(bool(r.get("error")) for r in latest.values()),
        wasted_gib=sum(r.get("wasted_gib") or 0.0 for r in failed),
        by_cause=_counts(failed, "cause"),
        by_framework=_counts(failed, "framework"),
        by_team=_counts(failed, "team"),
        groups=tuple(
            sorted((_group(name, members) for name, members in groups.items()), key=lambda g: (-g.count, g.fingerprint))
        ),
    )


def _counts(rows: list[dict[str, Any]], name: str) -> dict[str, int]:
    return dict(Counter(str(r[name]) for r in rows if r.get(name)).most_common())


def _group(name: str, members: list[dict[str, Any]]) -> Group:
    first = members[0]
    return Group(
        fingerprint=name,
        count=len(members),
        cause=first.get("cause"),
        framework=first.get("framework"),
        model=first.get("model"),
        example=first["log"],
        fix=first.get("fix"),
        wasted_gib=sum(m.get("wasted_gib") or 0.0 for m in members),
    )
