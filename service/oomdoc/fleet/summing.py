"""Summing up a fleet: by cause, framework and team; the same failure counted once per fingerprint."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

_Row = dict[str, Any]


def summarise(rows: Iterable[_Row]) -> dict[str, Any]:
    """The document of ``oomdoc batch``; of a log that was diagnosed twice (it had grown) the later row counts."""
    latest = {row["log"]: row for row in rows}
    failed = [r for r in latest.values() if r.get("cause") and r.get("verdict") not in (None, "no-failure")]
    groups: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in failed:
        groups[str(row.get("fingerprint"))].append(row)
    return {
        "schema": "oomdoc.fleet/1",
        "logs": len(latest),
        "failures": len(failed),
        "unreadable": sum(bool(r.get("error")) for r in latest.values()),
        "wasted_gib": _wasted(failed),
        **{f"by_{name}": _counts(failed, name) for name in ("cause", "framework", "team")},
        "groups": [_group(*group) for group in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))],
    }


def _wasted(rows: Sequence[_Row]) -> float:
    return round(sum(r.get("wasted_gib") or 0.0 for r in rows), 1)


def _counts(rows: Sequence[_Row], name: str) -> dict[str, int]:
    return dict(Counter(str(r[name]) for r in rows if r.get(name)).most_common())


def _group(fingerprint: str, members: Sequence[_Row]) -> dict[str, Any]:
    """Failures that are the same, with the first of them as their example."""
    first = members[0]
    same = {name: first.get(name) for name in ("cause", "framework", "model")}
    ways = {"example": first["log"], "fix": first.get("fix"), "wasted_gib": _wasted(members)}
    return {"fingerprint": fingerprint, "count": len(members), **same, **ways}
