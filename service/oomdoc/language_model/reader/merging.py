"""What a language model read, into the evidence: it adds and makes hints certain; what a machine printed stays."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from oomdoc.evidence import Evidence, Fact, Failure, ModelReading, Outcome, Statement
from oomdoc.intake.outcomes import failure_of

_GUESSED: Final = 0.9
"""Confidence below which a value that prose suggests gives way."""
_SUPPOSED: Final = 0.6
"""Confidence up to which an outcome is supposed from what people say of memory, no failure having been read."""
_EXPLAINED: Final = 0.75
"""Confidence up to which another failure is one that merely follows, or any error."""


def merged(evidence: Evidence, reading: ModelReading) -> Evidence:
    """The evidence with the reading in it."""
    facts = dict(evidence.facts)
    for fact in reading.facts:
        known = facts.get(fact.name)
        if known is None or _gives_way(known, fact, evidence.root):
            facts[fact.name] = _placed(fact, known)
    outcome, failures = _happened(evidence, reading.outcome)
    return replace(
        evidence,
        facts=MappingProxyType(facts),
        statements=_joined(evidence.statements, reading.statements),
        outcome=outcome,
        failures=failures,
        language_model=reading,
    )


def _gives_way(known: Fact, fact: Fact, root: Failure | None) -> bool:
    """Whether what was read gives way to what the model read.

    No line but the failing message states a phase; what frames and words show of it is a reading, as the model's is.
    """
    if fact.name == "phase":
        return root is None or known.span != root.signal.span or known.confidence < _GUESSED
    return not known.stated or (known.origin == "prose" and known.confidence < _GUESSED and known.value != fact.value)


def _placed(fact: Fact, known: Fact | None) -> Fact:
    """A fact that has no quote (an unknown phase) stands where the known one does."""
    return replace(fact, span=known.span) if known is not None and not fact.span.source else fact


def _joined(read: tuple[Statement, ...], added: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Every statement once, the surer one."""
    found = {one.name: one for one in read}
    for one in added:
        known = found.get(one.name)
        if known is None or known.probability < one.probability:
            found[one.name] = one
    return tuple(found.values())


def _happened(evidence: Evidence, read: Outcome | None) -> tuple[Outcome | None, tuple[Failure, ...]]:
    """What happened, and the failures: the model's word counts where nothing, or nothing certain, was seen."""
    known, failures = evidence.outcome, evidence.failures
    if read is None or not _open_to(known, read):
        return known, failures
    if read.kind in ("question", "healthy"):
        return read, ()
    failure = failure_of(read)
    return read, failures if failure is None else (failure, *failures)


def _open_to(known: Outcome | None, read: Outcome) -> bool:
    if known is None or known.confidence < 0.5:
        return True
    if known.kind in ("question", "healthy"):
        return read.kind not in ("question", "healthy")
    if known.kind == "said":
        return known.confidence <= _SUPPOSED and read.kind != "said"
    return known.kind == "other" and known.confidence <= _EXPLAINED and read.memory is not None
