"""Whether what is said here failed, or is only denied, wished for or said of a run that was fine.

Facts come from what failed. "Works with batch 1", "on 4.37 it ran" and "without gradient checkpointing" hold values
too, of other runs; they count only where nothing else is said. Advice and other people's machines count not at all.
"""

from __future__ import annotations

from typing import Final

from oomdoc.intake.patterns import patterns

__all__ = ["clause", "denied", "doubt", "negated", "worked"]

_RE: Final = patterns(__file__)


def clause(text: str, start: int, end: int) -> str:
    """The clause around ``text[start:end]``, at most 200 characters."""
    before, after = text[max(0, start - 140) : start], text[end : end + 140]
    if "(" in text or "（" in text:
        before, after = _RE["aside"].sub(" ", before), _RE["aside"].sub(" ", after)
    ends = [m.end() for m in _RE["end"].finditer(before)]
    stop = _RE["end"].search(after)
    return before[ends[-1] if ends else -110 :] + text[start:end] + after[: stop.start() if stop else 90]


def worked(text: str, start: int, end: int) -> bool:
    """Whether the clause speaks of a run that did not fail, or of a wish."""
    here = clause(text, start, end)
    return bool(_RE["worked"].search(here) or _RE["wish"].search(here)) and not _RE["failed"].search(
        _RE["worked"].sub(" ", here)
    )


def doubt(text: str, start: int, end: int) -> float:
    """How much less sure a value is for what its clause says: 0.0, 0.2 for a run that was fine, 0.6 elsewhere."""
    here = clause(text, start, end)
    if _RE["elsewhere"].search(here):
        return 0.6
    fine, failed = (
        _RE["worked"].search(here) or _RE["wish"].search(here),
        _RE["failed"].search(_RE["worked"].sub(" ", here)),
    )
    if not fine and not failed:
        here = _sentence(text, start, end)
        fine, failed = _RE["worked"].search(here), _RE["failed"].search(_RE["worked"].sub(" ", here))
    return 0.2 if fine and not failed else 0.0


def _sentence(text: str, start: int, end: int) -> str:
    """The sentence around ``text[start:end]``, as far as nothing is set against it; at most 240 characters."""
    before, after = text[max(0, start - 120) : start], text[end : end + 120]
    begun = [m.end() for m in _RE["stop"].finditer(before)]
    stop = _RE["stop"].search(after)
    return before[begun[-1] if begun else 0 :] + text[start:end] + after[: stop.start() if stop else 120]


def denied(text: str, end: int) -> bool:
    """Whether what follows says that it is off, or cannot be had."""
    return _RE["denied"].match(text, end, end + 40) is not None


def negated(text: str, start: int) -> bool:
    """Whether a negation stands shortly before."""
    return _RE["not"].search(text[max(0, start - 32) : start]) is not None
