"""One log of a fleet, diagnosed into one row; runs inside a worker process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from oomdoc.fleet.finding import Log, local_copy
from oomkb.errors import OomdocError

FIELDS: Final = (
    "log", "stamp", "team", "verdict", "cause", "probability", "framework", "model", "gpu", "gpu_count", "phase",
    "requested_gib", "capacity_gib", "wasted_gib", "fix", "fingerprint", "case", "error",
)  # fmt: skip
"""The columns of a row, in order."""
_MAX_GPUS: Final = 1 << 20


def diagnose_log(log: Log, team_pattern: str | None = None, *, plans: bool = True) -> dict[str, Any]:
    """Diagnose one log; an unreadable one gives a row with ``error``, never an exception."""
    row: dict[str, Any] = dict.fromkeys(FIELDS)
    row |= {"log": log.name, "stamp": log.stamp, "team": _team(log.name, team_pattern)}
    try:
        document = _document(log, plans)
    except OomdocError as error:
        return row | {"error": str(error)}
    except Exception as error:
        return row | {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    return row | _summary(document)


def _document(log: Log, plans: bool) -> dict[str, Any]:
    from oomdoc.intake import read
    from oomdoc.intake.stream import load_source

    with local_copy(log) as path:
        source = load_source(path)
    evidence = read([source])
    if evidence.root is None:
        # Most logs of a fleet are of jobs that were fine: what they say is noted, and nothing is looked for.
        facts = {name: {"value": fact.value, "stated": fact.stated} for name, fact in evidence.facts.items()}
        job = {"framework": evidence.framework}
        return {"verdict": "no-failure", "facts": facts, "job": job, "causes": [], "plans": [], "matches": []}
    from oomdoc.diagnosis.engine import diagnose
    from oomdoc.report.report import Report

    return Report(diagnose(evidence, plans=plans, questions=False), evidence.language).document()


def _team(name: str, pattern: str | None) -> str | None:
    match = re.search(pattern, name) if pattern else None
    if match is None:
        return None
    return match[1] if match.groups() else match[0]


def _summary(document: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: fact["value"] for name, fact in document["facts"].items() if fact["stated"]}
    failure = document.get("failure") or {}
    causes, plans, job = document["causes"], document["plans"], document.get("job") or {}
    # A log in which no failure was read is of a job that ran, whatever its settings make likely.
    verdict = document["verdict"] if failure else "no-failure"
    failed = verdict not in ("no-failure", "not-oom")
    cause = causes[0]["cause"] if causes and failed else None
    capacity = failure.get("capacity_gib") or facts.get("capacity_gib") or job.get("capacity_gib")
    row: dict[str, Any] = {
        "verdict": verdict,
        "cause": cause,
        "probability": causes[0]["probability"] if cause else None,
        "framework": job.get("framework"),
        "model": facts.get("model") if isinstance(facts.get("model"), str) else None,
        "gpu": facts.get("gpu"),
        "gpu_count": _whole(facts.get("gpu_count") or job.get("world")),
        "phase": failure.get("phase"),
        "requested_gib": failure.get("requested_gib"),
        "capacity_gib": capacity,
        "fix": _fix(plans[0]) if plans else None,
        "case": document["matches"][0]["case"] if document["matches"] else None,
    }
    # What the failed job held and could not use: every GPU of it, for the whole run.
    row["wasted_gib"] = round(float(capacity) * (row["gpu_count"] or 1), 2) if failed and capacity else None
    return row | {"fingerprint": _fingerprint(row, failure)}


def _whole(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < _MAX_GPUS else None


def _fix(plan: Mapping[str, Any]) -> str:
    return "; ".join(c["instruction"] or f"{c['key']}: {c['to']}" for c in plan["changes"])[:300]


def _fingerprint(row: Mapping[str, Any], failure: Mapping[str, Any]) -> str:
    """Equal for the same failure of the same kind of job: sizes are rounded, names and paths left out."""
    requested = row["requested_gib"]
    parts = [row["cause"], failure.get("signal"), row["framework"], row["model"], row["phase"]]
    parts.append(None if requested is None else f"{requested:.1f}")
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
