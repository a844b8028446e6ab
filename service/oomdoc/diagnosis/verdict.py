"""Which memory ran out, if any: from what happened alone. No wording and no likeness can make a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from oomdoc.diagnosis.forms import FITS, host_is_short, verdict_on
from oomdoc.diagnosis.planned import asks_why_held, counted, put_off, wants_figure
from oomdoc.diagnosis.result import CauseFinding, OtherFailure, Outlook, Verdict
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence, Outcome, say
from oomdoc.intake.outcomes import row_of
from oomdoc.intake.outcomes.decide import NAMED, failure_of

_MEMORY: Final[Mapping[str, Verdict]] = {
    "device": "device-oom",
    "host": "host-oom",
    "shared-memory": "shared-memory",
}
_PRINTED: Final = 0.95
"""Confidence of a failure of memory that a program printed in its own words."""
_DOUBTED: Final = 0.8
"""Probability of no shortage from which even such a message is doubted."""


def verdict_of(outcome: Outcome | None) -> Verdict:
    """The verdict on what happened."""
    if outcome is None or not outcome.fails:
        return "no-failure"
    if outcome.kind == "other":
        return "not-oom" if outcome.confidence >= NAMED else "unclear"
    return _MEMORY[outcome.memory or "device"]


def agreed(evidence: Evidence, causes: Sequence[CauseFinding]) -> tuple[Verdict, Evidence, tuple[CauseFinding, ...]]:
    """Verdict, outcome and causes that say the same: no shortage of memory can cause what is called one.

    Where the first cause is another failure, one that was seen beside it is the outcome; else what a program printed
    of its memory stands, and of what people say it is unclear what failed.
    """
    outcome = evidence.outcome
    verdict = verdict_of(outcome)
    if verdict == "device-oom" and outcome is not None and outcome.kind == "said" and _was_killed(evidence):
        verdict = "host-oom"
    if verdict == "device-oom" and causes and causes[0].cause == "host-ram" and causes[0].is_proven:
        verdict = "host-oom"  # the driver says the same of pinned host memory
    if verdict == "not-oom" and outcome is not None:
        return verdict, evidence, not_memory_first(outcome, causes)
    if verdict not in _MEMORY.values() or outcome is None or not causes or causes[0].cause != "not-oom":
        return verdict, evidence, tuple(causes)
    named = (o for o in evidence.other_outcomes if o.kind == "other" and o.confidence >= NAMED)
    # What a program printed of its memory is not explained by what follows from any failure.
    other = next((o for o in named if not outcome.printed or row_of(o.name).order == "root"), None)
    if other is not None:
        failures = tuple(f for f in (failure_of(other),) if f is not None)
        return "not-oom", replace(evidence, outcome=other, failures=failures), not_memory_first(other, causes)
    if outcome.confidence < _PRINTED or causes[0].probability >= _DOUBTED or len(causes) < 2:
        return "unclear", evidence, tuple(causes)
    first, best = causes[0], causes[1].probability
    others = sum(c.probability for c in causes[1:])
    scale = 1 / (others + best) if others else 1.0  # no shortage comes second, as likely as the first
    shared = [replace(c, probability=c.probability * scale) for c in causes[1:]]
    return verdict, evidence, (shared[0], replace(first, probability=best * scale), *shared[1:])


def outlook_of(view: View) -> Outlook | None:
    """Whether a job that somebody asks about or plans would fit; ``None`` where none is asked about or planned.

    ``unknown`` without the model (or its size) and the card (or its capacity).
    """
    outcome = view.evidence.outcome
    if outcome is None or outcome.kind != "question" or put_off(view.evidence):
        return None
    if not wants_figure(view.evidence):
        return Outlook("unknown") if view.estimate is not None else None
    named = view.stated("model") is not None or view.stated("params_b") is not None
    probability = view.estimate.fits_probability if view.estimate is not None else None
    if asks_why_held(view.evidence, view.job) and (not named or probability is None):
        return None
    if not named or probability is None or counted(view.job):
        return Outlook("unknown")
    if view.estimate is not None and host_is_short(view.job, view.estimate):
        return Outlook("does-not-fit", min(probability, 1 - FITS))
    return Outlook(verdict_on(view.estimate) if view.estimate is not None else "unknown", probability)


def other_failure_of(outcome: Outcome | None) -> OtherFailure | None:
    """The failure that is not memory, with where to look instead."""
    if outcome is None or verdict_of(outcome) != "not-oom":
        return None
    return OtherFailure(outcome.name, say(f"failure.{outcome.name}.why"), say(f"failure.{outcome.name}.next"))


def _was_killed(evidence: Evidence) -> bool:
    """Whether the process is said to have gone without a word: one that lacks the card's memory says so."""
    return evidence.root is None and any(s.name == "killed-without-message" for s in evidence.statements)


def not_memory_first(outcome: Outcome, causes: Sequence[CauseFinding]) -> tuple[CauseFinding, ...]:
    """The causes where another failure was seen: that first, what memory could have to do with it after it."""
    first = CauseFinding("not-oom", outcome.confidence, (say(f"failure.{outcome.name}.why"),), (outcome.span,))
    others = [c for c in causes if c.cause != "not-oom"]
    whole = sum(c.probability for c in others)
    share = (1 - outcome.confidence) / whole if whole else 0.0
    return (first, *(replace(c, probability=c.probability * share) for c in others))
