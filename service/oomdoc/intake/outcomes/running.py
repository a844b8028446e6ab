"""An engine that runs: what it is said to hold is its share, unless it is said to grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomdoc.evidence import Outcome, Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns

_RE: Final = patterns(__file__)
_MAX_CHARS, _MAX_TRIED = 2000, 400
_CACHE_MADE: Final = frozenset({"vllm-kv-cache-memory", "vllm-concurrency", "vllm-blocks", "sglang-slots"})
"""What an engine prints once its cache is on the card."""


def of_engine_that_runs(outcome: Outcome | None, signals: Sequence[Signal], prose: Sequence[Line]) -> Outcome | None:
    """The outcome; where an engine's log shows its cache made and nothing failed, what it is said to hold is its share.

    Words for growth over time stay a complaint: the share does not grow.
    """
    if outcome is None or outcome.name not in ("said-growth", "complaint") or outcome.memory == "host":
        return outcome
    measured = any(signal.name == "worked-at" and signal.data.get("measured") for signal in signals)
    if outcome.name == "complaint" and measured and any("?" in line.text or "？" in line.text for line in prose):
        return Outcome("question", "memory-question", outcome.span, None, 0.8)  # of a run that was measured as it ran
    if not any(signal.name in _CACHE_MADE for signal in signals):
        return outcome
    grows = any(_RE["over_time"].search(line.text[:_MAX_CHARS]) for line in prose[:_MAX_TRIED])
    return outcome if grows else Outcome("healthy", "healthy", outcome.span, None, 0.8)
