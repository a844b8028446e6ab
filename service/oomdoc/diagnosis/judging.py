"""The causes of a failure: ranked by what speaks for them, sums first, in agreement with what happened."""

from __future__ import annotations

from oomdoc.diagnosis.features import features_of
from oomdoc.diagnosis.proven_causes import proven_causes
from oomdoc.diagnosis.ranker import rank
from oomdoc.diagnosis.result import CauseFinding, Verdict
from oomdoc.diagnosis.verdict import agreed, verdict_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence


def judged(evidence: Evidence, view: View) -> tuple[Verdict, Evidence, tuple[CauseFinding, ...]]:
    """What happened, the evidence for it, and the causes, the likeliest first."""
    return agreed(evidence, proven_causes(view, rank(features_of(view))))


def causes_in(evidence: Evidence, view: View) -> tuple[CauseFinding, ...]:
    """The causes alone; none where nothing failed."""
    return () if verdict_of(evidence.outcome) == "no-failure" else judged(evidence, view)[2]
