"""A diagnosis document as Markdown: for an issue, a chat, a wiki. Pasted text is escaped, never interpreted."""

from __future__ import annotations

import re
from typing import Any, Final

from oomdoc.report.case_page import SHOWN_FIXES
from oomdoc.report.estimates import fits_sentence, plan_sentence, show_value
from oomdoc.report.screen import Screen, first_screen
from oomdoc.report.words import word, word_or

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~])")


def diagnosis_markdown(document: dict[str, Any], language: str) -> str:
    """The whole answer: what a first screen says in its order, then everything else."""
    cause = document["causes"][0]["cause"] if document["causes"] else ""
    lines = _screen(first_screen(document, language), language, cause)
    lines += _causes(document["causes"][1:], language) + _memory(document.get("estimate"), language)
    lines += _plans(document, language)
    lines += _matches(document, language) + _threads(document, language) + _questions(document, language)
    lines += _bullets("report.warnings", [_escape(w) for w in document["warnings"]], language)
    return "\n".join(lines).rstrip() + "\n"


def _screen(screen: Screen, language: str, cause: str) -> list[str]:
    """What ran out and where, why, what to do, how sure."""
    answer = list(screen.answer)
    lines = [f"## {_escape(screen.headline or answer.pop(0))}", ""]
    lines += [_escape(" ".join(answer)), ""] if answer else []
    if screen.grid:
        lines += ["```", *screen.grid, "```", ""]
    if screen.why:
        first, *further = screen.why
        lines += [f"**{word('screen.why', language)}**: {_escape(first)} (**{cause}**)", ""]
        lines += [*(f"- {_escape(line)}" for line in further), *(f"- `{_code(q)}`" for q in screen.quotes), ""]
    if screen.do:
        lines += [f"**{word('screen.do', language)}**", "", *(f"- {_escape(line)}" for line in screen.do), ""]
    for line in (*screen.further, *screen.read):
        lines += [_escape(line), ""]
    if screen.sure:
        lines += [f"**{word('screen.how-sure', language)}**: {_escape(screen.sure)}", ""]
    return lines


def _code(text: str) -> str:
    return text.replace("`", "'")


def _escape(text: Any) -> str:
    return _SPECIAL.sub(r"\\\1", str(text))


def _bullets(key: str, items: list[str], language: str) -> list[str]:
    return [f"### {word(key, language)}", "", *(f"- {item}" for item in items), ""] if items else []


def _causes(causes: list[dict[str, Any]], language: str) -> list[str]:
    items = []
    for cause in causes[:2]:
        if cause["probability"] < 0.02:
            continue
        places = ", ".join(f"`{e['source']}:{e['line']}`" for e in cause["evidence"][:3])
        why = " ".join(_escape(w) for w in cause["why"][:3])
        items.append(f"**{cause['cause']}** {cause['probability']:.0%}: {why}" + (f" ({places})" if places else ""))
    return _bullets("report.causes", items, language)


def _memory(estimate: dict[str, Any] | None, language: str) -> list[str]:
    if not estimate:
        return []
    rows = [f"### {word('report.memory', language)}", "", "| | GiB | |", "|---|---:|---|"]
    for name, phase in estimate["phases"].items():
        if not phase or not phase.get("terms"):
            continue
        terms = sorted(phase["terms"].items(), key=lambda t: -t[1])[:4]
        detail = ", ".join(f"{_escape(t)} {size:.2f}" for t, size in terms if size >= 0.005)
        label = word(f"phase.{name}", language)
        label = f"**{label}**" if name == estimate["peak_phase"] else label
        rows.append(f"| {label} | {phase['total_gib']:.2f} | {detail} |")
    if estimate.get("fits") is not None:
        rows += ["", fits_sentence(estimate, language)]
    return [*rows, ""]


def _plans(document: dict[str, Any], language: str) -> list[str]:
    if not document["plans"]:
        return []
    lines = [f"### {word('report.plans', language)}", ""]
    for number, plan in enumerate(document["plans"], 1):
        title = word_or(f"plan.{plan['name']}", plan["name"], language)
        lines.append(f"**{number}. {title}** — {plan_sentence(plan, language)}")
        lines.append("")
        for change in plan["changes"]:
            saved = f" ({word('report.saves', language, gib=format(change['saves_gib'], '.2f'))})"
            text = _escape(change["instruction"]) if change["instruction"] else _key(change)
            lines.append(f"- {text}{saved if change['saves_gib'] >= 0.01 else ''}")
        lines += [f"- {_escape(note)}" for note in plan["notes"]]
        if plan["patch"]:
            fence = "`" * max(3, 1 + max((len(r) for r in re.findall(r"`+", plan["patch"])), default=0))
            lines += ["", f"{fence}diff", plan["patch"].rstrip(), fence]
        lines.append("")
    return lines


def _key(change: dict[str, Any]) -> str:
    return f"`{change['key']}`: `{show_value(change['from'])}` → `{show_value(change['to'])}`"


def _matches(document: dict[str, Any], language: str) -> list[str]:
    items = []
    for match in document["matches"][:3]:
        items.append(f"[{_escape(match['title'])}]({match['url']}) `{match['case']}`")
        fixes = match.get("fixes", [])[:SHOWN_FIXES]
        items[-1] += "".join(f"\n  - {_escape(f['text'])} (*{_escape(f['standing'])}*)" for f in fixes)
    return _bullets("report.matches", items, language)


def _threads(document: dict[str, Any], language: str) -> list[str]:
    items = [f"<{t['url']}> `{t['cause']}` {t['likeness']:.0%}" for t in document.get("threads") or []]
    return _bullets("report.threads", items, language)


def _questions(document: dict[str, Any], language: str) -> list[str]:
    items = [
        f"`{q['fact']}`: {_escape(q['why'])}" + (f" → {_escape(q['how'])}" if q.get("how") else "")
        for q in document["questions"]
    ]
    return _bullets("report.questions", items, language)
