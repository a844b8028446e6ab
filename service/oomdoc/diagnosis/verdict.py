"""Which memory ran out, if any: from what happened alone. No wording and no likeness can make a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from oomdoc.diagnosis.planned import counted, host_is_short
from oomdoc.diagnosis.result import CauseFinding, OtherFailure, Outlook, Verdict
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Outcome
from oomdoc.messages import say

__all__ = ["not_memory_first", "other_failure_of", "outlook_of", "verdict_of"]

_MEMORY: Final[Mapping[str, Verdict]] = {
    "device": "device-oom",
    "host": "host-oom",
    "shared-memory": "shared-memory",
}
_NAMED: Final = 0.5
"""Confidence from which the name of a failure that is not memory counts; below, nothing tells what failed."""
_FITS: Final = 0.75
_FITS_NOT: Final = 0.25
"""Probabilities of fitting from which, and up to which, the answer is plain; between them it is tight."""


def verdict_of(outcome: Outcome | None) -> Verdict:
    """The verdict on what happened."""
    if outcome is None or outcome.kind in ("question", "healthy"):
        return "no-failure"
    if outcome.kind == "other":
        return "not-oom" if outcome.confidence >= _NAMED else "unclear"
    return _MEMORY[outcome.memory or "device"]


def outlook_of(view: View) -> Outlook | None:
    """Whether a job that somebody asks about or plans would fit; ``None`` where none is asked about or planned.

    ``unknown`` without the model (or its size) and the card (or its capacity).
    """
    outcome = view.evidence.outcome
    if outcome is None or outcome.kind != "question":
        return None
    named = view.stated("model") is not None or view.stated("params_b") is not None
    probability = view.estimate.fits_probability if view.estimate is not None else None
    if not named or probability is None or counted(view.job):
        return Outlook("unknown")
    if view.estimate is not None and host_is_short(view.job, view.estimate):
        return Outlook("does-not-fit", min(probability, _FITS_NOT))
    if probability >= _FITS:
        return Outlook("fits", probability)
    return Outlook("tight" if probability > _FITS_NOT else "does-not-fit", probability)


def other_failure_of(outcome: Outcome | None) -> OtherFailure | None:
    """The failure that is not memory, with where to look instead."""
    if outcome is None or verdict_of(outcome) != "not-oom":
        return None
    return OtherFailure(outcome.name, say(f"failure.{outcome.name}.why"), say(f"failure.{outcome.name}.next"))


def not_memory_first(outcome: Outcome, causes: Sequence[CauseFinding]) -> tuple[CauseFinding, ...]:
    """The causes where another failure was seen: that first, what memory could have to do with it after it."""
    first = CauseFinding("not-oom", outcome.confidence, (say(f"failure.{outcome.name}.why"),), (outcome.span,))
    others = [c for c in causes if c.cause != "not-oom"]
    whole = sum(c.probability for c in others)
    share = (1 - outcome.confidence) / whole if whole else 0.0
    return (first, *(replace(c, probability=c.probability * share) for c in others))
