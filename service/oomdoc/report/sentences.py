"""Sentences of a document that every form of the report says alike."""

from __future__ import annotations

from typing import Any

from oomdoc.report.words import word

_PASTED = ("input", "-")
"""Sources that are no files: text that was pasted."""


_WHOLE = 1e15


def show_value(value: Any) -> str:
    """A setting's value as people write it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(show_value, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{k} {show_value(v)}" for k, v in value.items())
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else f"{value:g}"
    return str(value)


def change_sentence(change: dict[str, Any], language: str) -> str:
    """A change as it is made: its key with the old value and the new, and the file; or what to do."""
    if change["instruction"]:
        return str(change["instruction"])
    old, new = change["from"], show_value(change["to"])
    text = f"{change['key']}: {show_value(old)} → {new}" if old is not None else f"{change['key']}: {new}"
    if old is None and change["key"].startswith("--"):
        text = change["key"] if change["to"] is True else f"{change['key']} {new}"
    named = change.get("file") not in (None, *_PASTED)
    return text + (f"  [{change['file']}]" if named else "")


def not_written(field: str, why: str, framework: str, language: str) -> str:
    """Why a field was not written into a file, and what to do (:class:`oomdoc.intake.configs.Patched`)."""
    kind, _, beside = why.partition(" ")
    return word(f"fix.{kind}", language, field=field, framework=framework or "-", beside=beside)


def likely(probability: float | None) -> str:
    """A probability as people read it: nothing about memory is quite certain."""
    return "?" if probability is None else f"{min(0.99, max(0.01, probability)):.0%}"


def plan_sentence(plan: dict[str, Any], language: str) -> str:
    """A plan's figures; a plan that nobody could price has its safety class only."""
    safety = word(f"safety.{plan['safety']}", language)
    if plan["peak_gib"] is None:
        return safety
    return word(
        "report.plan-line",
        language,
        peak=f"{plan.get('needed_gib') or plan['peak_gib']:.2f}",
        probability=likely(plan["fits_probability"]),
        speed=f"{plan['relative_speed']:.2f}",
        safety=safety,
    ) + (word("report.plan-host", language, gib=f"{plan['host_gib']:.0f}") if (plan.get("host_gib") or 0) >= 1 else "")


def fits_sentence(estimate: dict[str, Any], language: str) -> str:
    """Whether an estimate fits a capacity that is known, and how surely."""
    probability = estimate.get("fits_probability")
    shown = likely(probability)
    key = "report.fits-yes" if estimate["fits"] else "report.fits-no"
    return word(key, language, capacity=f"{estimate['capacity_gib']:.2f}", probability=shown)


def other_sentence(document: dict[str, Any], language: str) -> str:
    """The name of a failure that is not memory, to follow the verdict; empty where there is none."""
    other = document.get("other_failure")
    return ": " + word(f"failure.{other['kind']}.title", language) if other else ""
