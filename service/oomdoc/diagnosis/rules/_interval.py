"""A failure that returns every so many steps: what is done only then, a save or an evaluation, is what ran out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from oomdoc.diagnosis.view import View
from oomdoc.intake.sieve import alternatives

__all__ = ["LONG", "due", "failing_step", "returns_at"]

_BAR: Final = re.compile(r"\b(\d{1,7})/(\d{1,7}) (?:\[|\d\d:\d\d)[^\n]{0,60}(?:it/s|s/it|epoch)")
_RETURNS: Final = alternatives(
    r"(?:always|every ?time|each time|consistently|reproducibly|every run)[^\n]{0,40}?(?:\bat|\bon|\bafter|\bin|step"
    r"|iteration)[^\n\d]{0,12}(?P<a>\d{2,5})\b(?! ?[-~])"
    r"|(?:at|on|after) (?:exactly |precisely )?(?:the )?(?:step |iteration )?(?P<b>\d{2,5})(?:th)?(?: steps?"
    r"| iterations?)?[^\n\d]{0,24}(?:always|every ?time|each time|consistently)"
    r"|(?:每次|总是|都会?|固定)(?:在|到|是|训练|跑)?[^\n\d]{0,8}(?P<c>\d{2,5}) ?个?(?:steps?|步|iter)"
    r"|(?:第|到|在) ?(?P<d>\d{2,5}) ?个?(?:steps?|步|iter)[^\n\d]{0,8}(?:每次|总是|必|都会?)"
    r"|(?:exactly|precisely) (?:at|on|after) (?:step |iteration )?(?P<e>\d{2,5})\b"
    r"|every (?P<f>\d{2,5}) (?:steps|iterations)[^\n]{0,24}(?:oom|out of mem|crash|fail|spik|jump)"
)
_FEWEST: Final = 20
"""Intervals below this are hit by chance."""
_NEAR: Final = 2
LONG: Final = 60
"""Of an interval of at least this many steps, chance hits the last or the first few less than once in twelve."""


def returns_at(view: View) -> int | None:
    """The step of which it is told that it fails there every time."""
    found = _RETURNS.search(view.text)
    if found is None:
        return None
    return next((int(number) for number in found.groupdict().values() if number), None)


def failing_step(view: View) -> int | None:
    """The last step that was done before the failure, as told or as the last progress bar shows."""
    told = returns_at(view)
    if told is not None:
        return told
    if view.failure is not None and view.failure.step is not None:
        return view.failure.step
    shown = [s.data["step"] for s in view.evidence.find("progress") if "step" in s.data]
    if shown:
        return int(shown[-1])
    bars = _BAR.findall(view.text)
    return int(bars[-1][0]) if bars and bars[-1][0] != bars[-1][1] else None


def due(view: View, names: Sequence[str]) -> int | None:
    """The interval of that name that the failing step ends, to two steps."""
    every, step = view.setting(*names), failing_step(view)
    if not isinstance(every, int) or isinstance(every, bool) or every < _FEWEST or step is None or step < every - _NEAR:
        return None
    off = step % every
    return every if min(off, every - off) <= _NEAR else None
