"""Documents as one self-contained piece of HTML for a notebook: no script, no link, every value escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, Final

from oomdoc.report.bars import largest_terms
from oomdoc.report.screen import Screen, first_screen
from oomdoc.report.sentences import likely, show_value
from oomdoc.report.words import has, word

__all__ = ["diagnosis_html", "estimate_html"]

_COLOURS: Final = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d")
_BOX: Final = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;max-width:60em"
_BAR: Final = "display:inline-flex;width:24em;height:1em;background:#8882;vertical-align:middle;position:relative"
_MAX_PLANS: Final = 3
_MAX_CAUSES: Final = 5


def estimate_html(document: dict[str, Any], language: str) -> str:
    """An estimate: a stacked bar per phase on the scale of the card, the peak, whether it fits."""
    return f'<div style="{_BOX}">{_estimate(document, language)}</div>'


def diagnosis_html(document: dict[str, Any], language: str) -> str:
    """A diagnosis: the summary, causes with their probabilities, the memory, plans, questions."""
    parts = _screen(first_screen(document, language), language)
    if len(document["causes"]) > 1:
        rows = (_cause(cause, language) for cause in document["causes"][:_MAX_CAUSES])
        parts.append(_section("report.causes", f"<table>{''.join(rows)}</table>", language))
    if document.get("estimate"):
        parts.append(_section("report.memory", _estimate(document["estimate"], language), language))
    if document["plans"]:
        plans = (_plan(plan, language) for plan in document["plans"][:_MAX_PLANS])
        parts.append(_section("report.plans", f"<ol>{''.join(plans)}</ol>", language))
    if document["questions"]:
        asked = _items(f"{q['fact']}: {q['why']}" for q in document["questions"])
        parts.append(_section("report.questions", asked, language))
    if document["warnings"]:
        parts.append(_section("report.warnings", _items(document["warnings"]), language))
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _screen(screen: Screen, language: str) -> list[str]:
    """What ran out and where, why, what to do, how sure."""
    answer = list(screen.answer)
    parts = [f"<b>{escape(screen.headline or answer.pop(0))}</b>"]
    parts += [f"<p>{escape(' '.join(answer))}</p>"] if answer else []
    parts += [f"<pre>{escape(chr(10).join(screen.grid))}</pre>"] if screen.grid else []
    for key, lines in (("screen.why", (*screen.why, *screen.quotes)), ("screen.do", screen.do)):
        if lines:
            parts.append(_section(key, _items(lines), language))
    if screen.sure:
        parts.append(f"<div>{escape(word('screen.how-sure', language))}: {escape(screen.sure)}</div>")
    return parts


def _section(key: str, content: str, language: str) -> str:
    return f'<div style="margin-top:.8em"><b>{escape(word(key, language))}</b>{content}</div>'


def _items(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(str(text))}</li>' for text in texts)}</ul>"


def _share(size: float, full: float) -> str:
    return f"{max(0.0, min(100.0, 100 * size / full)) if full > 0 else 0:.2f}%"


def _cause(cause: dict[str, Any], language: str) -> str:
    key = f"cause.{cause['cause']}.title"
    title = word(key, language) if has(key) else cause["cause"]
    bar = f'<span style="{_BAR};width:8em"><span style="width:{_share(cause["probability"], 1.0)};background:#e45756">'
    why = "<br>".join(escape(str(reason)) for reason in cause["why"][:4])
    return (
        f'<tr><td style="text-align:right">{cause["probability"]:.0%}</td><td>{bar}</span></span></td>'
        f'<td style="text-align:left"><b>{escape(title)}</b> <code>{escape(cause["cause"])}</code><br>{why}</td></tr>'
    )


def _estimate(document: dict[str, Any], language: str) -> str:
    phases = {n: p for n, p in document["phases"].items() if p and p.get("terms")}
    capacity = document.get("capacity_gib") or 0.0
    full = max([capacity, *(p["total_gib"] for p in phases.values())], default=1.0)
    rows = (_phase(n, p, full, capacity, n == document["peak_phase"], language) for n, p in phases.items())
    peak, span = document["peak_gib"], document["interval_gib"].get("process") or [0.0, 0.0]
    values = {name: f"{peak[meter]:.2f}" for name, meter in (("peak", "process"), ("allocated", "allocated"))}
    line = word(
        "report.peak-line",
        language,
        needed=f"{document.get('needed_gib') or peak['process']:.2f}",
        **values,
        reserved=f"{peak['reserved']:.2f}",
        phase=word(f"phase.{document['peak_phase']}", language),
        low=f"{span[0]:.2f}",
        high=f"{span[1]:.2f}",
    )
    return (
        f"<table>{''.join(rows)}</table><div>{escape(line)}</div><div><b>{escape(_fits(document, language))}</b></div>"
    )


def _fits(document: dict[str, Any], language: str) -> str:
    if document.get("fits") is None:
        return word("report.fits-unknown", language)
    probability = document.get("fits_probability")
    shown = likely(probability)
    key = "report.fits-yes" if document["fits"] else "report.fits-no"
    return word(key, language, capacity=f"{document['capacity_gib']:.2f}", probability=shown)


def _phase(name: str, phase: dict[str, Any], full: float, capacity: float, is_peak: bool, language: str) -> str:
    segments, labels = [], []
    for number, (term, size) in enumerate(largest_terms(phase["terms"])):
        key = f"term.{term}"
        text = f"{word(key, language) if has(key) else term} {size:.2f} GiB"
        style = f"width:{_share(size, full)};background:{_COLOURS[number % len(_COLOURS)]}"
        segments.append(f'<span title="{escape(text)}" style="{style}"></span>')
        labels.append(text)
    if capacity:
        left = _share(capacity, full)
        segments.append(f'<span style="position:absolute;left:{left};height:100%;border-left:2px dashed"></span>')
    label = escape(word(f"phase.{name}", language))
    total = f"{phase['total_gib']:.2f} GiB"
    return (
        f'<tr title="{escape(", ".join(labels))}"><td style="text-align:left">{label}</td>'
        f'<td><span style="{_BAR}">{"".join(segments)}</span></td>'
        f'<td style="text-align:right">{f"<b>{total}</b>" if is_peak else total}</td></tr>'
    )


def _plan(plan: dict[str, Any], language: str) -> str:
    key = f"plan.{plan['name']}"
    title = word(key, language) if has(key) else plan["name"]
    changes = _items(
        c["instruction"] or f"{c['key']}: {show_value(c['from'])} → {show_value(c['to'])}" for c in plan["changes"]
    )
    figures = ", ".join(_figures(plan))
    patch = f"<pre>{escape(plan['patch'])}</pre>" if plan["patch"] else ""
    details = f" ({escape(figures)})" if figures else ""
    return f"<li><b>{escape(title)}</b>{details}{changes}{patch}</li>"


def _figures(plan: dict[str, Any]) -> Iterable[str]:
    """Where nothing could be priced, a plan has no figures."""
    if plan["peak_gib"] is not None:
        yield f"{plan.get('needed_gib') or plan['peak_gib']:.2f} GiB"
    if plan["fits_probability"] is not None:
        yield likely(plan["fits_probability"])
