"""Cases for other programs and for reading: JSON, OSV advisories, Markdown, and the JSON Schema of a record."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oomkb.errors import RecordError
from oomkb.records.case import Affected, Case, Fix, Outcome
from oomkb.records.taxonomy import definition

__all__ = ["FORMATS", "case_document", "export_all", "export_case", "json_schema", "markdown", "osv"]

FORMATS: Final = ("json", "osv", "markdown")

_OSV_ROLES: Final = {
    "report": "REPORT",
    "fix": "FIX",
    "evidence": "EVIDENCE",
    "docs": "WEB",
    "advisory": "ADVISORY",
    "discussion": "DISCUSSION",
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a case file (imports pydantic)."""
    from oomkb.records.schema import json_schema as schema

    return schema()


def case_document(case: Case) -> dict[str, Any]:
    """A case as plain values; what says nothing is left out."""
    plain = dataclasses.asdict(case)
    for name in ("private", "path", "digest"):
        del plain[name]
    plain["cause"] = case.cause
    plain["outcome"] = {"before": plain.pop("outcome_before"), "after": plain.pop("outcome_after")}
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


def osv(case: Case) -> dict[str, Any] | None:
    """A case with affected versions in the format of OSV (1.6.0); ``None`` for one without."""
    if not case.affected:
        return None
    return {
        "schema_version": "1.6.0",
        "id": f"OOMDOC-{case.cause}-{case.slug}",
        "published": f"{_day(case.date)}T00:00:00Z",
        "modified": f"{_day(case.date)}T00:00:00Z",
        "summary": case.title["en"],
        "details": f"{case.summary['en']}\n\n{case.why['en']}",
        "affected": [_osv_affected(item) for item in case.affected],
        "references": [{"type": _OSV_ROLES[r.role], "url": r.url} for r in case.references],
        "database_specific": {"cause": case.cause, "also": list(case.also)},
    }


def _day(date: str) -> str:
    """OSV wants a day: the first one of the month or year that is known."""
    return date + "-01-01"[len(date) - 4 :] if len(date) < 10 else date


def _osv_affected(item: Affected) -> dict[str, Any]:
    events: list[dict[str, str]] = []
    for range_ in item.ranges:
        events.append({"introduced": range_.introduced})
        if range_.fixed is not None:
            events.append({"fixed": range_.fixed})
        elif range_.last_affected is not None:
            events.append({"last_affected": range_.last_affected})
    out: dict[str, Any] = {
        "package": {"ecosystem": "PyPI", "name": item.package},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }
    if item.needs:
        out["ecosystem_specific"] = {"needs": item.needs}
    return out


_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "cause": "Cause",
        "symptom": "What was seen",
        "why": "Why",
        "fix": "What helps",
        "none": "No fix is known.",
        "affected": "Affected versions",
        "links": "References",
        "hardware": "Hardware",
        "observed": "Observed",
        "before": "before",
        "after": "after",
        "fits": "fits",
        "fails": "does not fit",
        "saves": "saves",
    },
    "zh": {
        "cause": "原因",
        "symptom": "现象",
        "why": "为什么",
        "fix": "怎么办",
        "none": "尚无已知的解决办法。",
        "affected": "受影响的版本",
        "links": "参考链接",
        "hardware": "硬件",
        "observed": "实测",
        "before": "之前",
        "after": "之后",
        "fits": "放得下",
        "fails": "放不下",
        "saves": "节省",
    },
}


def markdown(case: Case, language: str = "en") -> str:
    """A case as a page in English or Chinese."""
    lang = language if language in _WORDS else "en"
    word = _WORDS[lang]
    lines = [f"# {case.title[lang]}", "", f"`{case.id}` · {', '.join(case.frameworks)} · {case.date}", ""]
    lines += [case.summary[lang], "", f"**{word['cause']}**: {case.cause}. {definition(case.cause, lang)}", ""]
    hardware = _hardware(case)
    if hardware:
        lines += [f"**{word['hardware']}**: {hardware}", ""]
    lines += [f"## {word['symptom']}", ""]
    for symptom in case.symptoms:
        lines += ["```text", symptom.replace("```", "'''"), "```", ""]
    lines += [f"## {word['why']}", "", case.why[lang], "", f"## {word['fix']}", ""]
    lines += [_fix_line(fix, lang) for fix in case.fixes] or [word["none"]]
    observed = [
        f"{word[name]}: {text}"
        for name, outcome in (("before", case.outcome_before), ("after", case.outcome_after))
        if (text := _outcome(outcome, word))
    ]
    lines += ["", f"**{word['observed']}**: {'; '.join(observed)}"] if observed else []
    if case.affected:
        lines += ["", f"## {word['affected']}", ""] + [f"- {_affected_line(item)}" for item in case.affected]
    lines += ["", f"## {word['links']}", ""] + [f"- {r.role}: <{r.url}>" for r in case.references]
    return "\n".join(lines) + "\n"


def _hardware(case: Case) -> str:
    hardware = case.hardware
    count = f"{hardware.count} × " if hardware.count else ""
    capacity = f" ({hardware.capacity_gib:g} GiB)" if hardware.capacity_gib else ""
    return f"{count}{hardware.gpu or ('GPU' if count or capacity else '')}{capacity}".strip()


def _fix_line(fix: Fix, language: str) -> str:
    saves = f", {_WORDS[language]['saves']} {fix.saves_gib:g} GiB" if fix.saves_gib else ""
    return f"- {fix.text[language]} ({fix.status}, {fix.safety}{saves})"


def _outcome(outcome: Outcome, word: Mapping[str, str]) -> str:
    parts = [f"{outcome.peak_gib:g} GiB"] if outcome.peak_gib else []
    if outcome.fits is not None:
        parts.append(word["fits"] if outcome.fits else word["fails"])
    return ", ".join(parts)


def _affected_line(item: Affected) -> str:
    spans = []
    for range_ in item.ranges:
        end = f"<{range_.fixed}" if range_.fixed else f"<={range_.last_affected}" if range_.last_affected else ""
        start = "" if range_.introduced == "0" else f">={range_.introduced}"
        spans.append(",".join(part for part in (start, end) if part) or "*")
    return f"{item.package} {' || '.join(spans)}" + (f" ({item.needs})" if item.needs else "")


def export_case(case: Case, format_: str = "markdown", language: str = "en") -> str:
    """One case in one of :data:`FORMATS`.

    :raises RecordError: for another format, or OSV of a case without affected versions.
    """
    if format_ == "markdown":
        return markdown(case, language)
    if format_ == "json":
        return _json(case_document(case))
    if format_ == "osv":
        advisory = osv(case)
        if advisory is None:
            raise RecordError("names no affected versions", where=case.id, hint="export it as json or markdown")
        return _json(advisory)
    raise RecordError(f"{format_!r} is no format", where="format", hint=f"one of {', '.join(FORMATS)}")


def export_all(format_: str = "json", language: str = "en", cases: Iterable[Case] | None = None) -> str:
    """All cases: a JSON list, a JSON list of OSV advisories (those with versions), or one Markdown text.

    :raises RecordError: for another format.
    """
    if cases is None:
        from oomkb.records.loader import load_cases

        cases = load_cases()
    if format_ == "markdown":
        return "\n".join(markdown(case, language) for case in cases)
    if format_ == "json":
        return _json([case_document(case) for case in cases])
    if format_ == "osv":
        return _json([advisory for case in cases if (advisory := osv(case)) is not None])
    raise RecordError(f"{format_!r} is no format", where="format", hint=f"one of {', '.join(FORMATS)}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
