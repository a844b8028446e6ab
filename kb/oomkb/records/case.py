"""A case record: its fields and what each may hold, light enough for a cold diagnosis (no pydantic).

:mod:`oomkb.records.schema` builds the check of a file from these classes, :mod:`oomkb.records.compiled` reads them.

Who vouches for a claim of a case, and what may be said of a fix because of it. The status of a fix is never written
down: it follows from its witnesses. "Confirmed" is said only where somebody tried it and it worked, or where the code
was merged.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias

from oomkb.dataclass import dataclass
from oomkb.memory.job import Job

_KIND: Final = {
    "maintainer-said": "maintainer",
    "user-said": "user",
    "arithmetic": "arithmetic",
    "reproduced": "reproduced",
    "inference": "reasoning",
}
_STATUS: Final = {
    "worked": "confirmed-by-reporter",
    "elsewhere": "confirmed-by-reporter",
    "released": "confirmed-by-maintainer",
    "merged": "confirmed-by-maintainer",
    "reproduced": "arithmetic",
    "arithmetic": "arithmetic",
    "in-vain": "unknown",
    "unknown": "unknown",
}
"""Kind of standing -> status of the JSON documents; every other kind is ``suggested``."""
SCHEMA: Final = 2
"""The version of the record format: no file of another is left."""
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
Words: TypeAlias = Mapping[str, str]
"""language -> text; ``en`` and ``zh`` are always there"""
# A bound beside a type is held by what checks files (oomkb.records.schema).
Text = Annotated[str, ("min_length", 1)]
Line = Annotated[str, ("min_length", 8)]
Gib = Annotated[float, ("gt", 0)]


@dataclass(frozen=True, slots=True)
class Witness:
    """One witness of one claim; what does not belong to its kind is empty.

    ``by``: somebody in the thread tried it (``reporter-tried``); a maintainer or a user says so; it is in the code
    (``merged-code``); it follows from a sum (``arithmetic``); this project ``reproduced`` it with a command; it is the
    reasoning of the case's author (``inference``).
    """

    by: str
    ref: str = ""
    """The page, one of the case's references."""
    result: str = ""
    """Of a trial: ``worked``, ``partly`` or ``in-vain``."""
    pull: str = ""
    """Of merged code: ``owner/name#number``; or ``commit``."""
    commit: str = ""
    release: str = ""
    """The first release that has the merged code."""
    sum: str = ""
    """Of arithmetic: ``expression = value``."""
    command: str = ""
    """Of what this project reproduced: the command that prints it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What may be said of a fix: ``kind``, and the ``detail`` (a release, a pull request or a sum) where it has one."""

    kind: str
    detail: str = ""
    ref: str = ""
    unseen: str = ""
    """The day on which ``ref`` could not be opened, so that nobody could compare."""


def standing_of(witnesses: Sequence[Witness], reports: Collection[str] = ()) -> Standing:
    """The strongest thing that the witnesses bear out; one who tried it in vain outweighs who only says so.

    :param reports: the pages of the failure itself. What worked only on another page is ``elsewhere``, with that page
        (``owner/name#number``) as detail, and code that was merged outweighs it.
    """
    tried = {w.result: w for w in reversed(witnesses) if w.by == "reporter-tried"}
    here = [w for w in witnesses if w.result == "worked" and (not reports or w.ref in reports)]
    if here:
        return Standing("mixed" if "in-vain" in tried else "worked", ref=here[0].ref)
    for w in sorted(witnesses, key=lambda w: not w.release):
        if w.by == "merged-code":
            return Standing("released" if w.release else "merged", w.release or w.pull or w.commit, w.ref)
    if "worked" in tried:
        return Standing("mixed" if "in-vain" in tried else "elsewhere", _page(tried["worked"].ref), tried["worked"].ref)
    for result in ("partly", "in-vain"):
        if result in tried:
            return Standing(result, ref=tried[result].ref)
    for by in ("reproduced", "maintainer-said", "user-said", "arithmetic", "inference"):
        for w in witnesses:
            if w.by == by:
                return Standing(_KIND[by], w.sum or w.command, w.ref)
    return Standing("unknown")


def _page(url: str) -> str:
    """``owner/name#number`` of a thread on GitHub; of any other page its address."""
    return re.sub(r"^https://github\.com/([\w.-]+/[\w.-]+)/\w+/(\d+).*$", r"\1#\2", url)


def status_of(witnesses: Sequence[Witness]) -> str:
    """One of :data:`~oomkb.records.taxonomy.STATUSES`."""
    return _STATUS.get(standing_of(witnesses).kind, "suggested")


@dataclass(frozen=True, slots=True)
class Signature:
    """A literal text that gives the case away."""

    text: Line
    means: Words = field(default_factory=lambda: _EMPTY)
    """What it means when it is there; a file has to say it."""
    source: str = ""
    """The file that prints the line, and the versions of the program that have it."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPU as people write it, how many in all, capacity of one in GiB."""

    gpu: Text | None = None
    count: Annotated[int, ("ge", 1)] | None = None
    capacity_gib: Gib | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was observed: whether it fitted, and the peak in GiB where somebody measured it."""

    fits: bool | None = None
    peak_gib: Gib | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """One remedy. ``changes`` are (dotted) job fields; ``saves_gib`` was measured or observed, never computed here."""

    text: Words
    safety: str
    changes: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    saves_gib: Gib | None = None
    witness: tuple[Witness, ...] = ()

    @property
    def status(self) -> str:
        """One of :data:`~oomkb.records.taxonomy.STATUSES`, derived from the witnesses."""
        return status_of(self.witness)


@dataclass(frozen=True, slots=True)
class Range:
    """Versions from ``introduced`` ("0": from the first) up to ``fixed`` (without) or ``last_affected`` (with)."""

    introduced: Text
    fixed: Text | None = None
    last_affected: Text | None = None


@dataclass(frozen=True, slots=True)
class Affected:
    """A package (its name on PyPI), the ranges of it that are affected, and the versions it was only seen with."""

    package: Text
    ranges: tuple[Range, ...] = ()
    needs: str = ""
    """A feature without which the versions do no harm, such as ``zero3``: shown with the warning."""
    seen: tuple[Text, ...] = ()
    """Versions that reporters ran: whether others are affected is not known."""
    witness: tuple[Witness, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A public page: ``role`` is one of ``report fix evidence docs advisory discussion``.

    ``checked`` is the day on which the record was compared with it, ``visible`` how much of it could be opened that
    day: ``whole``, ``part`` or ``none``.
    """

    role: str
    url: Text
    checked: str = ""
    visible: str = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One real failure, read from ``<cause>/<slug>.yaml``."""

    id: str
    """``cause/slug``"""
    title: Words
    summary: Words
    why: Words
    symptoms: Annotated[tuple[Line, ...], ("min_length", 1)]
    """What somebody would paste or ask; none holds the title or the answer."""
    signatures: tuple[Signature, ...] = ()
    hardware: Hardware = field(default_factory=Hardware)
    frameworks: tuple[Text, ...] = ()
    phase: Text = "unknown"
    method: Text | None = None
    objective: Text | None = None
    before: Mapping[str, Any] | None = None
    """The job document of the run that failed; ``after``: of the one that ran."""
    after: Mapping[str, Any] | None = None
    outcome_before: Outcome = field(default_factory=Outcome)
    outcome_after: Outcome = field(default_factory=Outcome)
    also: tuple[Text, ...] = ()
    """Further causes that play a part."""
    fixes: tuple[Fix, ...] = ()
    """Empty: no fix is known."""
    affected: tuple[Affected, ...] = ()
    references: tuple[Reference, ...] = ()
    languages: tuple[str, ...] = ()
    """Languages of the symptoms' source."""
    cause_witness: tuple[Witness, ...] = ()
    """Who says that this cause is the cause; likewise of ``why`` and of what was observed (``outcome``)."""
    why_witness: tuple[Witness, ...] = ()
    outcome_witness: tuple[Witness, ...] = ()
    date: str = ""
    """Of the report, ISO: a day, or a month or year where no more is known."""
    schema: int = SCHEMA
    private: bool = False
    """From a folder of ``OOMDOC_CASES`` rather than shipped."""
    path: str = ""
    digest: str = ""
    """SHA-256 of the file, so that an index embeds only what changed."""

    @property
    def cause(self) -> str:
        """The folder: a cause of the taxonomy."""
        return self.id.partition("/")[0]

    @property
    def slug(self) -> str:
        """The file's name without its ending."""
        return self.id.partition("/")[2]

    @property
    def url(self) -> str:
        """The page to read first: the report where there is one."""
        for reference in self.references:
            if reference.role == "report":
                return reference.url
        return self.references[0].url if self.references else ""

    def standing(self, fix: Fix) -> Standing:
        """What may be said of one of its fixes: "worked for the reporter", "merged in 0.16.8", "our reasoning"."""
        return self.standing_of(fix.witness, frozenset(r.url for r in self.references if r.role == "report"))

    def standing_of(self, witnesses: tuple[Witness, ...], reports: frozenset[str] = frozenset()) -> Standing:
        """What its witnesses bear out, and the day on which their page could not be opened, where that is so."""
        found = standing_of(witnesses, reports)
        days = (r.checked for r in self.references if r.url == found.ref and r.visible == "none")
        return replace(found, unseen=next(days, ""))

    def jobs(self) -> tuple[Job | None, Job | None]:
        """The failing run and the one that worked, as jobs where they are described."""
        before, after = (None if run is None else Job.from_document(run) for run in (self.before, self.after))
        return before, after


def case_document(case: Case) -> dict[str, Any]:
    """A case as plain values; what says nothing is left out."""
    plain = dataclasses.asdict(case)
    for name in ("private", "path", "digest"):
        del plain[name]
    plain["cause"] = case.cause
    plain["outcome"] = {"before": plain.pop("outcome_before"), "after": plain.pop("outcome_after")}
    for fix, shown in zip(plain["fixes"], case.fixes, strict=True):
        fix["status"] = shown.status
        fix["standing"] = case.standing(shown).kind
    pruned: dict[str, Any] = _pruned(plain)
    pruned.setdefault("fixes", [])
    return pruned


def _pruned(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {k: _pruned(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [_pruned(v) for v in value]
    return value
