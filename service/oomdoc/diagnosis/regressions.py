"""Known memory regressions among installed versions, from the case records that name affected ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.evidence import Message, say
from oomdoc.report.words import render
from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.frameworks import builds_on, canonical
from oomkb.memory.job import Job
from oomkb.records.case import Affected, Case, Range
from oomkb.records.loader import cached_cases
from oomkb.records.versions import affects, last_good, package_name, seen_with, version_of


@dataclass(frozen=True, slots=True)
class Advisory:
    """A known memory regression that an installed version lies in."""

    package: str
    version: str
    case: str
    title: Mapping[str, str]
    """language -> title"""
    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None
    needs: str = ""
    """A feature without which it does no harm."""
    good: str | None = None
    """The release right before the range, where somebody went back to it."""
    seen: bool = False
    """A reporter had this version; no range is known."""
    url: str = ""

    def document(self, language: str = "en") -> dict[str, Any]:
        """As JSON."""
        return {
            "package": self.package,
            "version": self.version,
            "case": self.case,
            "title": self.title.get(language) or self.title.get("en", ""),
            "introduced": self.introduced,
            "fixed": self.fixed,
            "last_affected": self.last_affected,
            "needs": self.needs or None,
            "url": self.url or None,
        }

    def text(self, language: str = "en") -> str:
        """One line for a terminal."""
        title = self.title.get(language) or self.title.get("en", "")
        if self.seen:
            remedy = say("advisory.seen")
        elif self.fixed:
            remedy = say("advisory.fixed", version=self.fixed)
        elif self.introduced and self.introduced != "0":
            remedy = say("advisory.older", version=self.introduced)
        else:
            remedy = say("advisory.open")
        return render(
            say("advisory.line", package=self.package, version=self.version, title=title, remedy=remedy, url=self.url),
            language,
        )


def _affected(cases: Iterable[Case] | None = None) -> list[tuple[Case, Affected]]:
    """Each affected package of each case by itself: two of one case may be installed."""
    return [(case, item) for case in (cached_cases() if cases is None else cases) for item in case.affected]


def _sorted(found: Iterable[Advisory]) -> list[Advisory]:
    return sorted(found, key=lambda a: (a.package, a.case))


def scan(versions: Mapping[str, str], cases: Sequence[Case] | None = None) -> list[Advisory]:
    """The known regressions among ``versions`` (package -> version), sorted by package and case."""
    installed = {package_name(name) for name in versions}
    known = ((case, item) for case, item in _affected(cases) if package_name(item.package) in installed)
    hits = ((case, affects((item,), versions)) for case, item in known)
    return _sorted(_advisory(case, hit.package, hit.version, hit.range, hit.needs) for case, hit in hits if hit)


def affecting(job: Job, versions: Mapping[str, str], cases: Sequence[Case] | None = None) -> list[Advisory]:
    """Those that the job may meet: not where it is known to do without what a regression needs."""
    return [a for a in scan(versions, cases) if not a.needs or applies(a.needs, job) is not False]


def scan_seen(versions: Mapping[str, str]) -> list[Advisory]:
    """Versions among ``versions`` that a reporter had, where no range of the case covers them."""
    outside = ((case, item) for case, item in _affected() if affects((item,), versions) is None)
    hits = ((case, seen_with((item,), versions)) for case, item in outside)
    found = (_advisory(case, hit.package, hit.version, hit.range, hit.needs) for case, hit in hits if hit)
    return _sorted(replace(one, introduced=None, last_affected=None, good=None, seen=True) for one in found)


def range_of(advisory: Advisory) -> Message:
    """The affected versions in words, whichever of their ends are known."""
    introduced = None if advisory.introduced in (None, "0") else advisory.introduced
    ends = {"introduced": introduced, "fixed": advisory.fixed, "last": advisory.last_affected}
    known = {name: value for name, value in ends.items() if value}
    form = "-".join(name for name in ("introduced", "fixed" if advisory.fixed else "last") if name in known)
    return say(f"advisory.range-{form or 'open'}", **known)


def one_per_package(found: Iterable[Advisory]) -> list[Advisory]:
    """The most precise advisory of each package: both ends known before one, one before none."""
    best: dict[str, Advisory] = {}
    for item in sorted(found, key=lambda a: (a.introduced in (None, "0"), a.fixed is None, a.good is None)):
        best.setdefault(item.package, item)
    return list(best.values())


def distinct(found: Iterable[Advisory]) -> list[Advisory]:
    """One per range: several cases may tell of the same regression."""
    ordered = sorted(found, key=lambda a: a.good is not None)
    return list({(a.package, a.introduced, a.fixed): a for a in ordered}.values())


def suspects(job: Job, versions: Mapping[str, str], cases: Sequence[Case] | None = None) -> list[Advisory]:
    """Known regressions that would hit ``job`` if its package, whose version is not stated, were in the range."""
    stated = {package_name(name) for name in versions}
    open_ = ((c, i) for c, i in _affected(cases) if i.ranges and i.needs and package_name(i.package) not in stated)
    hit = (pair for pair in open_ if applies(pair[1].needs, job) is True)
    return _sorted(_advisory(case, item.package, "", item.ranges[0], item.needs) for case, item in hit)


_FEATURES: Final[Mapping[str, tuple[str, Any]]] = {
    "zero3": ("sharding", "zero3"),
    "zero-3": ("sharding", "zero3"),
    "zero2": ("sharding", "zero2"),
    "fsdp2": ("sharding", "fsdp2"),
    "gradient checkpointing": ("grad_ckpt", True),
    "dpo": ("objective", "dpo"),
    "grpo": ("objective", "grpo"),
    "qlora": ("method", "qlora"),
}


def applies(needs: str, job: Job) -> bool | None:
    """Whether the job uses what a regression needs; ``None`` where that is not known or not stated in known terms."""
    text = needs.lower()
    answers = [_uses(job, name, value) for word, (name, value) in _FEATURES.items() if word in text]
    if False in answers:
        return False
    return True if answers and None not in answers else None


def _uses(job: Job, name: str, value: Any) -> bool | None:
    held = job.get(name)
    if held is None or name in job.assumed:
        return None
    return bool(held) if value is True else bool(held == value)


def _advisory(case: Case, package: str, version: str, range_: Range, needs: str) -> Advisory:
    return Advisory(
        package=package,
        version=version,
        case=case.id,
        title=case.title,
        introduced=range_.introduced,
        fixed=range_.fixed,
        last_affected=range_.last_affected,
        needs=needs,
        good=last_good(case, package, range_),
        url=case.url,
    )


def regressions_for(job: Job, versions: Mapping[str, str], matched: Sequence[str]) -> list[dict[str, Any]]:
    """``{"package", "used", "affected", "fixed", "last_good"}`` for each regression that installed versions lie in.

    Where no version is stated, those of the matched cases, with ``used`` left ``None``: a version to ask about.

    :param matched: ids of the cases that look like the failure, best first.
    """
    try:
        known = {case.id: case for case in cached_cases() if case.affected}
    except OomdocError:
        return []
    cases = [known[i] for i in dict.fromkeys([*(i for i in matched if i in known), *sorted(known)])]
    found = [entry for case in cases for entry in _entries(case, job, versions, ask=case.id in matched)]
    out: dict[str, dict[str, Any]] = {}
    for entry in sorted(found, key=lambda e: e["used"] is None):
        first = out.setdefault(entry["package"], entry)
        # Several records may tell of one regression: each may know another way out.
        for way in ("fixed", "last_good"):
            first[way] = first[way] or entry[way]
    return list(out.values())[:3]


def _entries(case: Case, job: Job, versions: Mapping[str, str], *, ask: bool) -> Iterator[dict[str, Any]]:
    for item in case.affected:
        if not item.ranges or applies(item.needs, job) is False:
            continue
        hit, stated = affects((item,), versions), versions.get(item.package)
        good = stated is not None and ask and _is_older(stated, item)
        if hit is None and not good and (stated or not ask or not _is_plausible(item.package, job)):
            continue
        # Somebody who states a release from before the regression tells what worked.
        used, last = hit.version if hit else stated if good else None, item.ranges[-1]
        ways = {
            "affected": hit is not None,
            "fixed": last.fixed,
            "last_good": last_good(case, item.package, last),
            "case": case.id,
        }
        yield {"package": item.package, "used": used, **ways}


def _is_older(version: str, item: Affected) -> bool:
    """Whether a release is older than all that are affected."""
    here, starts = version_of(version), [version_of(r.introduced or "0") for r in item.ranges]
    return here is not None and all(start is not None and here < start for start in starts)


def _is_plausible(package: str, job: Job) -> bool:
    """Whether a library whose version nobody states is part of this run at all."""
    if package == "deepspeed":
        return job.framework in ("deepspeed", "openrlhf") or str(job.sharding or "").startswith("zero")
    if package in ("vllm", "sglang"):
        return job.framework == package or (job.rollout is not None and job.rollout.engine in (None, package))
    return package in _EVERYWHERE or builds_on(job.framework, canonical(package))


_EVERYWHERE: Final = frozenset({"torch"})
"""What every run is built on."""
