"""Before a launch: what is wrong with a config, as findings for people and code scanning (SARIF 2.1.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from oomdoc import __version__
from oomdoc.diagnosis.forms import TRAINING_COUNTS, needed_of, price_form
from oomdoc.diagnosis.regressions import affecting
from oomdoc.diagnosis.run_words import cards_of
from oomdoc.evidence import Evidence, Message, Source, problem_of, say
from oomdoc.planner import planned_job
from oomdoc.report.document import framework_document
from oomdoc.report.words import render, word
from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError, JobError
from oomkb.memory.job import Job
from oomkb.pricing import price

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know before a launch. ``rule`` is stable: ``does-not-fit``, ``inactive-setting`` ..."""

    rule: str
    level: Level
    message: Message
    line: int = 1


@dataclass(frozen=True, slots=True)
class Checked:
    """One file's findings; ``fits`` is ``None`` where no GPU or model is named."""

    file: str
    findings: tuple[Finding, ...]
    fits: bool | None = None
    framework: Mapping[str, Any] | None = None
    """Name, probability, share of unknown keys; ``None`` for a job document."""


def check_text(
    text: str,
    file: str,
    changes: Mapping[str, Any],
    *,
    versions: Mapping[str, str] | None = None,
    wanted: float = 0.9,
    others: Sequence[Source] = (),
) -> Checked:
    """Check one config, launch script or job document.

    :param changes: job fields set on top (``gpu``, ``gpus`` ...).
    :param versions: installed libraries, for known memory regressions.
    :param wanted: the probability of fitting below which it is an error.
    :param others: further files that it names.
    :raises JobError: for a field that describes no possible run.
    """
    job, evidence, careful = planned_job(text, file, changes, others)
    findings = [*_settings(evidence), *_regressions(job, {**job.versions, **(versions or {})})]
    fits, priced = _fit(job, wanted, careful=careful)
    return Checked(file, tuple(findings + priced), fits, framework_document(evidence) if evidence is not None else None)


def _settings(evidence: Evidence | None) -> list[Finding]:
    if evidence is None:
        return []
    found = [
        Finding("inactive-setting", "warning", say(i.reason, **{"setting": i.setting, **i.values}), i.span.line)
        for i in evidence.inactive
    ]
    known = {i.span.line for i in evidence.inactive}
    found += [Finding("framework", "warning", w) for w in evidence.warnings if isinstance(w, Message)]
    for document in (d for d in evidence.documents if d.framework != "unknown"):
        found += [
            Finding(
                "unknown-key", "note", say("check.unknown-key", key=s.key, framework=document.framework), s.span.line
            )
            for s in document.settings
            if not s.known and s.span.line not in known
        ]
    return found


def _regressions(job: Job, versions: Mapping[str, str]) -> list[Finding]:
    found = affecting(job, versions)
    said = (
        say("check.regression", package=a.package, version=a.version, fixed=a.fixed or "?", url=a.url) for a in found
    )
    return [Finding("known-regression", "warning", one) for one in said]


def _fit(job: Job, wanted: float, *, careful: bool) -> tuple[bool | None, list[Finding]]:
    if not job.has_model:
        return None, [Finding("not-priced", "note", say("check.no-model"))]
    try:
        estimate = price(job, careful=careful).estimate
    except CatalogError as error:
        return None, [Finding("not-priced", "note", say("check.not-priced", problem=problem_of(error)))]
    except JobError as error:
        return None, [Finding("impossible", "error", say("check.impossible", problem=problem_of(error)))]
    if estimate.capacity_bytes is None:
        return None, [Finding("not-priced", "note", say("check.no-gpu", peak_bytes=needed_of(estimate)))]
    probability = estimate.fits_probability or 0.0
    values = {
        "cards": cards_of(job),
        "peak_bytes": needed_of(estimate),
        "capacity_bytes": estimate.capacity_bytes,
        "probability": f"{probability:.0%}",
        "phase": estimate.peak_phase,
        "owner": estimate.owner,
    }
    if probability >= wanted:
        return True, [Finding("fits", "note", say("check.fits", **values))]
    if estimate.fits:
        return False, [Finding("tight", "warning", say("check.tight", **values))]
    if _is_uncounted(job):
        return None, [Finding("gpus-unknown", "warning", _fewest(job, wanted, careful=careful))]
    return False, [Finding("does-not-fit", "error", say("check.does-not-fit", **values))]


def _is_uncounted(job: Job) -> bool:
    """Whether the job is to be spread over ranks, and nothing says over how many."""
    spread = job.sharding not in (None, "none", "ddp", "device-map")
    return spread and all(job.get(name) is None for name in ("world", "gpus", "nodes", "dp", "tp", "pp"))


def _fewest(job: Job, wanted: float, *, careful: bool) -> Message:
    """The fewest GPUs that hold it, where their number is not stated."""
    for count in TRAINING_COUNTS[1:]:
        priced = price_form(job, {"gpus": count}, careful=careful)
        if priced is not None and (priced.estimate.fits_probability or 0.0) >= wanted:
            return say("check.gpus-unknown", cards=cards_of(priced.job), peak_bytes=needed_of(priced.estimate))
    return say("check.gpus-unknown-none", count=TRAINING_COUNTS[-1])


_SIGNS: Final = {"error": "✗", "warning": "!", "note": "·"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def findings_text(checked: Sequence[Checked], language: str) -> str:
    """One line a finding, then a summary."""
    lines = []
    for one in checked:
        for finding in one.findings:
            lines.append(f"{_SIGNS[finding.level]} {one.file}:{finding.line}: {render(finding.message, language)}")
    found = [f for one in checked for f in one.findings]
    errors = sum(f.level == "error" for f in found)
    warnings = sum(f.level == "warning" for f in found)
    lines.append(word("check.summary", language, files=len(checked), errors=errors, warnings=warnings))
    return "\n".join(lines)


def findings_document(checked: Sequence[Checked], language: str) -> dict[str, Any]:
    """As JSON."""
    return {
        "schema": "oomdoc.check/1",
        "files": [
            {
                "file": one.file,
                "fits": one.fits,
                "framework": dict(one.framework) if one.framework is not None else None,
                "findings": [
                    {"rule": f.rule, "level": f.level, "line": f.line, "message": render(f.message, language)}
                    for f in one.findings
                ],
            }
            for one in checked
        ],
    }


def findings_sarif(checked: Sequence[Checked], language: str) -> dict[str, Any]:
    """For code scanning."""
    found = [(one.file, f) for one in checked for f in one.findings]
    rules = sorted({f.rule for _, f in found})
    results = [
        {
            "ruleId": f.rule,
            "ruleIndex": rules.index(f.rule),
            "level": f.level,
            "message": {"text": render(f.message, language)},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": max(1, f.line)}}}
            ],
        }
        for file, f in found
    ]
    driver = {"name": "oomdoc", "version": __version__, "rules": [{"id": rule} for rule in rules]}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
