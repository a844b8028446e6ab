"""Sentences of a document that every form of the report says alike."""

from __future__ import annotations

from typing import Any

from oomdoc.report.words import word

__all__ = ["fits_sentence", "other_sentence", "outlook_sentence", "plan_sentence"]


def plan_sentence(plan: dict[str, Any], language: str) -> str:
    """A plan's figures; a plan that nobody could price has its safety class only."""
    safety = word(f"safety.{plan['safety']}", language)
    if plan["peak_gib"] is None:
        return safety
    return word(
        "report.plan-line",
        language,
        peak=f"{plan['peak_gib']:.2f}",
        probability=f"{plan['fits_probability']:.0%}",
        speed=f"{plan['relative_speed']:.2f}",
        safety=safety,
    )


def fits_sentence(estimate: dict[str, Any], language: str) -> str:
    """Whether an estimate fits a capacity that is known, and how surely."""
    probability = estimate.get("fits_probability")
    shown = "?" if probability is None else f"{probability:.0%}"
    key = "report.fits-yes" if estimate["fits"] else "report.fits-no"
    return word(key, language, capacity=f"{estimate['capacity_gib']:.2f}", probability=shown)


def outlook_sentence(document: dict[str, Any], language: str) -> str:
    """Whether a job that was asked about would fit; empty where none was."""
    outlook = document.get("outlook")
    if not outlook:
        return ""
    probability = outlook["probability"]
    shown = "?" if probability is None else f"{probability:.0%}"
    return word(f"outlook.{outlook['answer']}", language, probability=shown)


def other_sentence(document: dict[str, Any], language: str) -> str:
    """The name of a failure that is not memory, to follow the verdict; empty where there is none."""
    other = document.get("other_failure")
    return ": " + word(f"failure.{other['kind']}.title", language) if other else ""
