"""Known memory regressions for a diagnosis: packages with the release that has the fix and the last good one before.

The ranges come from the case records; the last good release from the record's own fixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oomkb.errors import OomdocError
from oomkb.frameworks import canonical, lineage
from oomkb.memory.job import Job
from oomkb.records.case import Affected, Case

__all__ = ["regressions_for"]


def regressions_for(job: Job, versions: Mapping[str, str], matched: Iterable[str]) -> list[dict[str, Any]]:
    """``{"package", "used", "fixed", "last_good"}`` for each regression that the installed versions lie in.

    Where no version is stated, those of the matched cases, with ``used`` left ``None``: a version to ask about.

    :param matched: ids of the cases that look like the failure, best first.
    """
    try:
        from oomkb.records.loader import cached_cases

        cases = {case.id: case for case in cached_cases() if case.affected}
    except (OomdocError, ImportError):
        return []
    order = [i for i in matched if i in cases] + sorted(i for i in cases if i not in set(matched))
    found = [entry for i in order for entry in _entries(cases[i], job, versions, ask=i in set(matched))]
    out: dict[str, dict[str, Any]] = {}
    for entry in sorted(found, key=lambda e: e["used"] is None):
        known = out.setdefault(entry["package"], entry)
        # Several records may tell of one regression: each may know another way out.
        for way in ("fixed", "last_good"):
            known[way] = known[way] or entry[way]
    for entry in out.values():
        entry["last_good"] = entry["last_good"] or _other_record(entry, cases.values())
    return list(out.values())[:3]


def _before(version: str, item: Affected) -> bool:
    """Whether a release is older than all that are affected."""
    from packaging.version import InvalidVersion, Version

    try:
        return all(r.introduced not in (None, "0") and Version(version) < Version(r.introduced) for r in item.ranges)
    except InvalidVersion:
        return False


def _other_record(entry: Mapping[str, Any], cases: Iterable[Case]) -> str | None:
    """The last good release as another record of the same regression (the same package and fix) has it."""
    found = (
        _ways_out(case, item)
        for case in cases
        for item in case.affected
        if item.package == entry["package"] and any(r.fixed and r.fixed == entry["fixed"] for r in item.ranges)
    )
    return next((ways["last_good"] for ways in found if ways["last_good"]), None)


def _entries(case: Case, job: Job, versions: Mapping[str, str], *, ask: bool) -> Iterator[dict[str, Any]]:
    from oomkb.records.versions import affects

    for item in case.affected:
        if not item.ranges or not _in_use(item.needs, job):
            continue
        hit = affects((item,), versions)
        stated = item.package in versions
        good = stated and ask and _before(versions[item.package], item)
        if hit is None and not good and (stated or not ask or not _plausible(item.package, job)):
            continue
        # Somebody who states a release from before the regression tells what worked.
        used = hit.version if hit else versions[item.package] if good else None
        yield {"package": item.package, "used": used, **_ways_out(case, item)}


def _plausible(package: str, job: Job) -> bool:
    """Whether a library whose version nobody states is part of this run at all."""
    sharding = str(job.sharding or "")
    if package == "deepspeed":
        return job.framework in ("deepspeed", "openrlhf") or sharding.startswith("zero")
    if package in ("vllm", "sglang"):
        return job.framework == package or (job.rollout is not None and job.rollout.engine in (None, package))
    owner = canonical(package)
    if owner is None or job.framework is None:
        return True
    return any(member.name == owner for member in lineage(job.framework))


def _ways_out(case: Case, item: Affected) -> dict[str, Any]:
    from oomkb.records.versions import last_good

    last = item.ranges[-1]
    return {"fixed": last.fixed, "last_good": last_good(case, item.package, last), "case": case.id}


def _in_use(needs: str, job: Job) -> bool:
    """Whether what a regression needs is in use, as far as known."""
    need = needs.lower()
    if ("zero3" in need or "zero-3" in need) and job.sharding not in (None, "zero3"):
        return False
    if "checkpointing" in need and job.grad_ckpt is False:
        return False
    return not ("fsdp2" in need and job.sharding not in (None, "fsdp2"))
