"""Two sentences a tired engineer can act on, with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomdoc.diagnosis.result import CauseFinding, Plan, TensorMatch, Verdict
from oomdoc.diagnosis.view import View
from oomdoc.messages import Message, say

__all__ = ["summarise"]

_SURE: Final = 0.55


def summarise(
    view: View, verdict: Verdict, causes: Sequence[CauseFinding], plans: Sequence[Plan]
) -> tuple[Message, ...]:
    """What it is, and what to do."""
    if verdict == "no-failure":
        return (say("summary.no-failure"),)
    if not causes:
        return (say("summary.unclear"),)
    best = causes[0]
    title = say(f"cause.{best.cause}.title")
    sure = round(100 * best.probability)
    out = [say("summary.cause" if best.probability >= _SURE else "summary.probable", title=title, percent=sure)]
    out += _numbers(view)
    out.append(_action(best, plans))
    return tuple(out)


def _numbers(view: View) -> list[Message]:
    tensor = next((t for t in view.tensors if t.match >= 0.6), None)
    requested, capacity = view.bytes_of("requested"), view.bytes_of("capacity")
    if tensor is not None:
        return [_tensor(tensor)]
    if view.estimate is not None and capacity:
        key = "summary.over" if view.estimate.process_bytes > capacity else "summary.under"
        return [
            say(
                key,
                peak_bytes=view.estimate.process_bytes,
                capacity_bytes=capacity,
                phase=view.estimate.peak_phase,
                owner=view.estimate.owner,
            )
        ]
    if requested:
        return [say("summary.requested", requested_bytes=requested)]
    return []


def _tensor(tensor: TensorMatch) -> Message:
    shape = " × ".join(f"{n:,}" for n in tensor.shape)
    return say("summary.tensor", tensor=tensor.note or tensor.name, shape=shape, size_bytes=tensor.size_bytes)


def _action(best: CauseFinding, plans: Sequence[Plan]) -> Message:
    for plan in plans:
        if plan.fits_probability >= 0.5 and plan.changes:
            changes = ", ".join(f"{c.key} → {c.new}" for c in plan.changes if c.instruction is None)
            if changes:
                return say("summary.plan", changes=changes, peak_bytes=plan.estimate.process_bytes)
    return say(f"cause.{best.cause}.action")
