"""Two sentences a tired engineer can act on, with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomdoc.diagnosis.result import CauseFinding, Change, Plan, TensorMatch, Verdict
from oomdoc.diagnosis.verdict import predicted
from oomdoc.diagnosis.view import View
from oomdoc.messages import Message, say

__all__ = ["summarise"]

_SURE: Final = 0.55
_MOST_STEPS: Final = 4


def summarise(
    view: View, verdict: Verdict, causes: Sequence[CauseFinding], plans: Sequence[Plan]
) -> tuple[Message, ...]:
    """What it is, and what to do."""
    if verdict == "no-failure":
        return _quiet(view)
    if not causes:
        return (say("summary.unclear"),)
    best = causes[0]
    if predicted(view):
        return (*_foreseen(view, best), _action(best, plans))
    title = say(f"cause.{best.cause}.title")
    sure = round(100 * best.probability)
    out = [say("summary.cause" if best.probability >= _SURE else "summary.probable", title=title, percent=sure)]
    out += _numbers(view, best)
    out.append(_action(best, plans))
    return tuple(out)


def _quiet(view: View) -> tuple[Message, ...]:
    """No failure; where a job is described, what it is predicted to need."""
    capacity = view.bytes_of("capacity")
    if view.estimate is None or not capacity:
        return (say("summary.no-failure"),)
    return (say("summary.fits", peak_bytes=view.estimate.process_bytes, capacity_bytes=capacity),)


def _foreseen(view: View, best: CauseFinding) -> list[Message]:
    estimate, capacity = view.estimate, view.bytes_of("capacity")
    if estimate is None or not capacity:
        return []
    key = "summary.foreseen" if estimate.process_bytes >= capacity else "summary.foreseen-close"
    sizes = {"peak_bytes": estimate.process_bytes, "capacity_bytes": capacity}
    title = say(f"cause.{best.cause}.title")
    return [say(key, title=title, phase=estimate.peak_phase, owner=estimate.owner, **sizes)]


def _numbers(view: View, best: CauseFinding) -> list[Message]:
    tensor = next((t for t in view.tensors if t.match >= 0.6 and t.cause == best.cause), None)
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
    """The first plan that fits, in full; else what to do about the cause."""
    for plan in plans:
        steps = [_step(change) for change in plan.changes]
        # Steps of which arithmetic knows nothing come first only where it has nothing of its own to say.
        alone = plan.fits_probability >= 0.5 or not any(p.priced for p in plans)
        if not plan.priced and alone and 0 < len(steps) <= _MOST_STEPS:
            return say("fixes.note.steps", changes=steps)
        if plan.priced and plan.fits_probability >= 0.5 and 0 < len(steps) <= _MOST_STEPS:
            return say("summary.plan", changes=steps, peak_bytes=plan.estimate.process_bytes)
    return say(f"cause.{best.cause}.action")


def _step(change: Change) -> Message | str:
    return change.instruction if change.instruction is not None else f"{change.key} → {change.new}"
