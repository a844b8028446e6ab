"""Known memory regressions among installed versions, from the case records that name affected ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.messages import Message, say
from oomdoc.report.words import render
from oomkb.dataclass import dataclass
from oomkb.memory.job import Job
from oomkb.records.case import Case, Range

__all__ = [
    "Advisory",
    "applies",
    "distinct",
    "one_per_package",
    "range_of",
    "scan",
    "scan_seen",
    "scan_versions",
    "suspects",
]


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


def scan(versions: Mapping[str, str], cases: Sequence[Case] | None = None) -> list[Advisory]:
    """The known regressions among ``versions`` (package -> version), sorted by package and case."""
    from oomkb.records.loader import load_cases
    from oomkb.records.versions import affects

    found = []
    for case in load_cases() if cases is None else cases:
        # Each affected package of a case is asked by itself: two of them may be installed.
        for item in case.affected:
            hit = affects((item,), versions)
            if hit is not None:
                found.append(_advisory(case, hit.package, hit.version, hit.range, hit.needs))
    return sorted(found, key=lambda a: (a.package, a.case))


def scan_seen(versions: Mapping[str, str], cases: Sequence[Case] | None = None) -> list[Advisory]:
    """Versions among ``versions`` that a reporter had, where no range of the case covers them."""
    from oomkb.records.loader import load_cases
    from oomkb.records.versions import affects, seen_with

    found = []
    for case in load_cases() if cases is None else cases:
        for item in case.affected:
            hit = seen_with((item,), versions)
            if hit is not None and affects((item,), versions) is None:
                one = _advisory(case, hit.package, hit.version, hit.range, hit.needs)
                found.append(replace(one, introduced=None, last_affected=None, good=None, seen=True))
    return sorted(found, key=lambda a: (a.package, a.case))


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
    from oomkb.records.loader import load_cases
    from oomkb.records.versions import package_name

    stated = {package_name(name) for name in versions}
    found = []
    for case in load_cases() if cases is None else cases:
        for item in case.affected:
            open_ = item.ranges and item.needs and package_name(item.package) not in stated
            if open_ and applies(item.needs, job) is True:
                found.append(_advisory(case, item.package, "", item.ranges[0], item.needs))
    return sorted(found, key=lambda a: (a.package, a.case))


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
    from oomkb.records.versions import last_good

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


scan_versions = scan
