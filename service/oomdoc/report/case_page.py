"""A case record as a page in English or Chinese, each fix with what its witnesses bear out."""

from __future__ import annotations

from typing import Final

from oomdoc.report.words import word
from oomkb.records.case import Affected, Case, Fix, Outcome, Reference, Standing
from oomkb.records.taxonomy import definition

SHOWN_FIXES: Final = 3
"""Fixes of one known case that a report shows."""


def standing_words(standing: Standing, language: str) -> str:
    """What may be said of a fix: worked for the reporter, merged in 0.16.8, our reasoning ..."""
    said = word(f"standing.{standing.kind}", language, detail=standing.detail)
    return f"{said}; {word('case.visible.none', language, day=standing.unseen)}" if standing.unseen else said


def case_page(case: Case, language: str = "en") -> str:
    """The page as Markdown."""
    lang = "zh" if language == "zh" else "en"
    lines = [f"# {case.title[lang]}", "", f"`{case.id}` · {', '.join(case.frameworks)} · {case.date}", ""]
    lines += [case.summary[lang], "", f"**{word('case.cause', lang)}**: {case.cause}. {definition(case.cause, lang)}"]
    lines += [f"({standing_words(case.standing_of(case.cause_witness), lang)})", ""]
    hardware = _hardware(case)
    if hardware:
        lines += [f"**{word('case.hardware', lang)}**: {hardware}", ""]
    lines += [f"## {word('case.symptom', lang)}", ""]
    for symptom in case.symptoms:
        lines += ["```text", symptom.replace("```", "'''"), "```", ""]
    why = standing_words(case.standing_of(case.why_witness), lang)
    lines += [f"## {word('case.why', lang)}", "", f"{case.why[lang]} ({why})", ""]
    lines += [f"## {word('case.fix', lang)}", ""]
    lines += [_fix_line(fix, case.standing(fix), lang) for fix in case.fixes] or [word("case.none", lang)]
    lines += _observed(case, lang)
    if case.affected:
        lines += ["", f"## {word('case.affected', lang)}", ""]
        lines += [f"- {text}" for item in case.affected for text in _affected_lines(item, lang)]
    lines += ["", f"## {word('case.links', lang)}", ""] + [_link(r, lang) for r in case.references]
    return "\n".join(lines) + "\n"


def _link(reference: Reference, language: str) -> str:
    """The page, and what could be seen of it when the record was last compared with it."""
    seen = word(f"case.visible.{reference.visible}", language, day=reference.checked) if reference.checked else ""
    return f"- {reference.role}: <{reference.url}>{f' ({seen})' if seen else ''}"


def _hardware(case: Case) -> str:
    hardware = case.hardware
    count = f"{hardware.count} × " if hardware.count else ""
    capacity = f" ({hardware.capacity_gib:g} GiB)" if hardware.capacity_gib else ""
    return f"{count}{hardware.gpu or ('GPU' if count or capacity else '')}{capacity}".strip()


def _fix_line(fix: Fix, standing: Standing, language: str) -> str:
    saves = f", {word('case.saves', language, gib=format(fix.saves_gib, 'g'))}" if fix.saves_gib else ""
    return f"- {fix.text[language]} ({standing_words(standing, language)}, {fix.safety}{saves})"


def _observed(case: Case, language: str) -> list[str]:
    parts = [
        f"{word(f'case.{name}', language)}: {text}"
        for name, outcome in (("before", case.outcome_before), ("after", case.outcome_after))
        if (text := _outcome(outcome, language))
    ]
    if not parts:
        return []
    who = f" ({standing_words(case.standing_of(case.outcome_witness), language)})" if case.outcome_witness else ""
    return ["", f"**{word('case.observed', language)}**: {'; '.join(parts)}{who}"]


def _outcome(outcome: Outcome, language: str) -> str:
    parts = [f"{outcome.peak_gib:g} GiB"] if outcome.peak_gib else []
    if outcome.fits is not None:
        parts.append(word("case.fits" if outcome.fits else "case.fails", language))
    return ", ".join(parts)


def _affected_lines(item: Affected, language: str) -> list[str]:
    spans = []
    for range_ in item.ranges:
        end = f"<{range_.fixed}" if range_.fixed else f"<={range_.last_affected}" if range_.last_affected else ""
        start = "" if range_.introduced == "0" else f">={range_.introduced}"
        spans.append(",".join(part for part in (start, end) if part) or "*")
    needs = f" ({item.needs})" if item.needs else ""
    lines = [f"{item.package} {' || '.join(spans)}{needs}"] if spans else []
    if item.seen:
        lines.append(f"{word('case.seen', language, package=item.package, versions=', '.join(item.seen))}{needs}")
    return lines
