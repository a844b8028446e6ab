"""Cases with affected versions as advisories in the format of OSV, for other programs."""

from __future__ import annotations

from typing import Any, Final

from oomkb.records.case import Affected, Case, Range

_OSV_ROLES: Final = {
    "report": "REPORT",
    "fix": "FIX",
    "evidence": "EVIDENCE",
    "docs": "WEB",
    "advisory": "ADVISORY",
    "discussion": "WEB",
}


def osv(case: Case) -> dict[str, Any] | None:
    """A case with affected ranges in the format of OSV (1.7.5, an id of a local database); ``None`` for one without.

    Versions that were only seen are no statement about a range: they go with the package under ``database_specific``.
    """
    ranged = [item for item in case.affected if item.ranges]
    if not ranged:
        return None
    return {
        "schema_version": "1.7.5",
        "id": f"x_OOMDOC-{case.cause}-{case.slug}",
        "published": f"{_day(case.date)}T00:00:00Z",
        "modified": f"{_day(case.date)}T00:00:00Z",
        "summary": case.title["en"],
        "details": f"{case.summary['en']}\n\n{case.why['en']}",
        "affected": [_osv_affected(item) for item in ranged],
        "references": [{"type": _OSV_ROLES[r.role], "url": r.url} for r in case.references],
        "database_specific": {"cause": case.cause, "also": list(case.also)},
    }


def _day(date: str) -> str:
    """OSV wants a day: the first one of the month or year that is known."""
    return date + "-01-01"[len(date) - 4 :] if len(date) < 10 else date


def _osv_affected(item: Affected) -> dict[str, Any]:
    out: dict[str, Any] = {
        "package": {"ecosystem": "PyPI", "name": item.package},
        # One range each: OSV has no range with both a fixed and a last affected version.
        "ranges": [{"type": "ECOSYSTEM", "events": _events(range_)} for range_ in item.ranges],
        "database_specific": {"witness": sorted({w.by for w in item.witness}), "seen": list(item.seen)},
    }
    if item.needs:
        out["ecosystem_specific"] = {"needs": item.needs}
    return out


def _events(range_: Range) -> list[dict[str, str]]:
    events = [{"introduced": range_.introduced}]
    if range_.fixed is not None:
        events.append({"fixed": range_.fixed})
    elif range_.last_affected is not None:
        events.append({"last_affected": range_.last_affected})
    return events
