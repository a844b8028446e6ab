"""What a person's own figures mean for the runs that are asked about.

Who measured a peak at one batch or length knows what no settings tell. What the estimate says of other sizes is carried
over: by its difference from one figure, or along the line through two.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any, Final

from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.forms import needed_of, price_form
from oomdoc.diagnosis.planning.planner import plan
from oomdoc.diagnosis.planning.quantities import most_steps
from oomdoc.diagnosis.run_words import names_of, step_of
from oomdoc.diagnosis.view import states_of
from oomdoc.evidence import Evidence, Message, say
from oomdoc.intake.asked import asked_of
from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.units import GIB

_STATES: Final = {
    "weights": ("weights",),
    "gradients": ("gradients",),
    "optimizer": ("fp32 masters", "optimizer states"),
}
"""Terms that grow with the parameters alone."""
_NEARLY: Final = 0.3
"""How far from whole bytes a term may be: rounding of blocks, and what stands beside it."""
_MOST: Final = 3
_LEAST_SAVED: Final = 0.03
"""Of the peak: a change that saves less is not named."""


def held_for(about: Plain) -> Iterator[Message]:
    """Where the memory of a training run goes, where it is asked why it takes so much."""
    if about.wanted != "reserved" or about.estimate.served is not None or about.job.objective == "inference":
        return
    yield from _per_parameter(about)
    yield from savings(about.job, about.estimate)


def _per_parameter(about: Plain) -> Iterator[Message]:
    """Of full training on one card: sharded states are no whole bytes of a parameter."""
    job, estimate = about.job, about.estimate
    if job.method != "full" or (job.world or 1) > 1 or not estimate.params:
        return
    held = estimate.phases["optimizer-step"].terms_bytes if "optimizer-step" in estimate.phases else {}
    sizes = {name: sum(held.get(t, 0.0) for t in terms) / estimate.params for name, terms in _STATES.items()}
    whole = {name: round(size) for name, size in sizes.items()}
    if any(abs(sizes[n] - whole[n]) > _NEARLY * max(1, whole[n]) for n in sizes):
        return
    total = sum(whole.values())
    yield say("answer.states", **whole, total=total, params=estimate.params / 1e9, size_bytes=total * estimate.params)


def savings(job: Job, estimate: Estimate, kept: Collection[str] = ()) -> Iterator[Message]:
    """The changes that lower the peak most, each alone.

    :param kept: fields that no change may touch.
    """
    try:
        singles = plan(job, context=Context(kept=frozenset(kept))).singles
    except OomdocError:
        return
    least = max(_LEAST_SAVED * estimate.process_bytes, GIB / 2)
    named = sorted((f.change for f in singles if f.change.instruction is None), key=lambda c: -c.saves_bytes)
    most = {change.key: change for change in reversed(named) if change.saves_bytes >= least}
    if most:
        changes = sorted(most.values(), key=lambda c: -c.saves_bytes)[:_MOST]
        rows = [say("answer.saving", change=step_of(change), saves_bytes=change.saves_bytes) for change in changes]
        yield say("answer.savings", changes=rows)


_MIN_DIFFERENCE: Final = 0.08
"""Share by which figures must differ from the estimate to be worth a sentence."""
_SLOPES: Final = (0.3, 4.0)
"""Between two figures, how many bytes one of the estimate may stand for."""
USABLE: Final = 0.95
"""Share of the card up to which a figure that is carried over is taken to fit."""
_MAX_STEPS: Final = 1023
"""Samples, or grains of a length, up to which the largest is looked for."""
GRAIN: Final = {"micro_batch": 1, "seq_len": 256, "users": 1, "step": 1, "cards": 1}
NAMES: Final = {field: f"answer.named-{field.replace('_', '-')}" for field in GRAIN}


@dataclass(frozen=True, slots=True)
class Point:
    """One figure: the size at which it was measured (none: the run as it is), and the estimate for it, in bytes."""

    field: str
    value: int
    seen_bytes: float
    estimated_bytes: float
    fixed_bytes: float
    """What does not change with the size: the states, which arithmetic knows."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The line from estimates to what a person would see, through their figures."""

    points: tuple[Point, ...]
    slope: float
    offset_bytes: float

    def seen(self, estimated_bytes: float) -> float:
        """What would be seen where this is estimated."""
        return self.offset_bytes + self.slope * estimated_bytes


def sees_figures(evidence: Evidence) -> bool:
    """Whether a person tells what the run that is asked about holds: at a size, or as it is where no other is asked."""
    sized = any(s.data.get("measured") for s in evidence.find("worked-at"))
    return sized or (asked_of(evidence).target_length is None and next(evidence.find("in-use"), None) is not None)


def calibration(evidence: Evidence, job: Job, *, careful: bool) -> Calibration | None:
    """The line through the figures of the input; ``None`` without any, or where the run cannot be priced."""
    told = [
        (s.data["field"], s.data["value"], s.data["shown_bytes"])
        for s in evidence.find("worked-at")
        if s.data.get("measured")
    ]
    if not told and sees_figures(evidence):
        told = [("", 0, s.data["shown_bytes"]) for s in evidence.find("in-use")]
    points = []
    for field, value, seen in told:
        priced = price_form(job, {field: value} if field else {}, careful=careful)
        if priced is None:
            return None
        points.append(Point(field, value, seen, needed_of(priced.estimate), states_of(priced.estimate)))
    if not points:
        return None
    low, high = (f(points, key=lambda point: point.estimated_bytes) for f in (min, max))
    apart = high.estimated_bytes - low.estimated_bytes
    if apart > 0.02 * high.estimated_bytes:
        slope = (high.seen_bytes - low.seen_bytes) / apart
    elif high.fixed_bytes < high.seen_bytes < high.estimated_bytes:
        # States are what they are: what is less than estimated is less for each token.
        slope = (high.seen_bytes - high.fixed_bytes) / (high.estimated_bytes - high.fixed_bytes)
    else:
        slope = 1.0
    slope = slope if _SLOPES[0] <= slope <= _SLOPES[1] else 1.0
    return Calibration(tuple(points), slope, high.seen_bytes - slope * high.estimated_bytes)


def by_own_figures(about: Plain, evidence: Evidence) -> Iterator[Message]:
    """What the runs that are asked about would take by the person's own figures, where these say something else."""
    line = calibration(evidence, about.stated, careful=about.careful)
    if line is None:
        return
    differs = max(abs(point.seen_bytes / point.estimated_bytes - 1) for point in line.points)
    if differs < _MIN_DIFFERENCE:
        return
    capacity = about.estimate.capacity_bytes
    runs = [run_of(names, size, capacity) for names, size in _asked(about, line)]
    if about.wanted in ("batch", "length") and capacity and not about.sides:
        runs += list(_largest(about, line, capacity))
    if runs:
        yield say("answer.own-figures", points=[_point(point) for point in line.points], runs=runs)


def _point(point: Point) -> Message:
    if not point.field:
        return say("answer.own-point-alone", size_bytes=point.seen_bytes)
    return say("answer.own-point", size_bytes=point.seen_bytes, name=named(point.field, point.value))


def named(field: str, value: int) -> Message:
    """A size in words: ``batch 8``."""
    return say(NAMES[field], value=f"{value:,}")


def run_of(name: Any, size_bytes: float, capacity_bytes: float | None, usable_bytes: float | None = None) -> Message:
    """What a run takes, and whether that fits: up to ``usable_bytes`` it does, up to the whole card it is tight."""
    key = "own-run"
    if capacity_bytes is not None:
        tight = "own-tight" if size_bytes <= capacity_bytes else "own-not"
        key = "own-fits" if size_bytes <= (usable_bytes or USABLE * capacity_bytes) else tight
    return say(f"answer.{key}", name=name, size_bytes=size_bytes, capacity_bytes=capacity_bytes or 0.0)


def _asked(about: Plain, line: Calibration) -> Iterator[tuple[Any, float]]:
    """Name and carried-over figure of each run that is asked about and was not measured itself."""
    known = {(point.field, point.value) for point in line.points}
    for side in about.sides:
        if side.needed_bytes is not None and known.isdisjoint(side.asked.fields.items()):
            yield names_of(side.asked), line.seen(side.needed_bytes)
    job = about.job
    fields = {point.field for point in line.points} - {""}
    if not about.sides and fields and all((name, job.get(name)) not in known for name in fields):
        yield [named(name, job.get(name) or 0) for name in sorted(fields)], line.seen(needed_of(about.estimate))


def _largest(about: Plain, line: Calibration, capacity_bytes: float) -> Iterator[Message]:
    """The largest batch or length that fits by the figures."""
    field = "micro_batch" if about.wanted == "batch" else "seq_len"
    grain = GRAIN[field]

    def size(steps: int) -> float:
        priced = price_form(about.stated, {field: steps * grain}, careful=about.careful)
        return line.seen(needed_of(priced.estimate)) if priced is not None else math.inf

    found = most_steps(lambda steps: size(steps) <= USABLE * capacity_bytes, _MAX_STEPS)
    if found:
        yield say("answer.own-largest", name=named(field, found * grain), size_bytes=size(found))
