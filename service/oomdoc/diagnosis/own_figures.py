"""What a person's own figures mean for the runs that are asked about.

Who measured a peak at one batch or length knows what no settings tell. What the estimate says of other sizes is carried
over: by its difference from one figure, or along the line through two.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.forms import needed_of, price_form
from oomdoc.diagnosis.result import Answer
from oomdoc.diagnosis.run_words import names_of, step_of
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
    from oomdoc.diagnosis.fixes import Context
    from oomdoc.diagnosis.planning import plan

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
_USABLE: Final = 0.95
"""Share of the card up to which a figure that is carried over is taken to fit."""
_MAX_STEPS: Final = 1023
"""Samples, or grains of a length, up to which the largest is looked for."""
_GRAIN: Final = {"micro_batch": 1, "seq_len": 256, "users": 1, "step": 1, "cards": 1}
_NAMES: Final = {field: f"answer.named-{field.replace('_', '-')}" for field in _GRAIN}


@dataclass(frozen=True, slots=True)
class Point:
    """One figure: the size at which it was measured (none: the run as it is), and the estimate for it, in bytes."""

    field: str
    value: int
    seen_bytes: float
    estimated_bytes: float


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
        points.append(Point(field, value, seen, needed_of(priced.estimate)))
    if not points:
        return None
    low, high = (f(points, key=lambda point: point.estimated_bytes) for f in (min, max))
    apart = high.estimated_bytes - low.estimated_bytes
    slope = (high.seen_bytes - low.seen_bytes) / apart if apart > 0.02 * high.estimated_bytes else 1.0
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
    runs = [_run(names, size, capacity) for names, size in _asked(about, line)]
    if about.wanted in ("batch", "length") and capacity and not about.sides:
        runs += list(_largest(about, line, capacity))
    if runs:
        yield say("answer.own-figures", points=[_point(point) for point in line.points], runs=runs)


def _point(point: Point) -> Message:
    if not point.field:
        return say("answer.own-point-alone", size_bytes=point.seen_bytes)
    return say("answer.own-point", size_bytes=point.seen_bytes, name=_named(point.field, point.value))


def _named(field: str, value: int) -> Message:
    return say(_NAMES[field], value=f"{value:,}")


def _run(name: Any, size_bytes: float, capacity_bytes: float | None, usable_bytes: float | None = None) -> Message:
    key = "own-run"
    if capacity_bytes is not None:
        tight = "own-tight" if size_bytes <= capacity_bytes else "own-not"
        key = "own-fits" if size_bytes <= (usable_bytes or _USABLE * capacity_bytes) else tight
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
        yield [_named(name, job.get(name) or 0) for name in sorted(fields)], line.seen(needed_of(about.estimate))


def _largest(about: Plain, line: Calibration, capacity_bytes: float) -> Iterator[Message]:
    """The largest batch or length that fits by the figures."""
    from oomdoc.diagnosis.planning.quantities import most_steps

    field = "micro_batch" if about.wanted == "batch" else "seq_len"
    grain = _GRAIN[field]

    def size(steps: int) -> float:
        priced = price_form(about.stated, {field: steps * grain}, careful=about.careful)
        return line.seen(needed_of(priced.estimate)) if priced is not None else math.inf

    found = most_steps(lambda steps: size(steps) <= _USABLE * capacity_bytes, _MAX_STEPS)
    if found:
        yield say("answer.own-largest", name=_named(field, found * grain), size_bytes=size(found))


@dataclass(frozen=True, slots=True)
class Size:
    """A size of a run: so many samples, users, steps, tokens or cards; with ``tokens``, of so many each."""

    value: int
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class MeasuredLine:
    """The line through a person's figures over one size of a run whose model is not known."""

    field: str
    points: tuple[tuple[Size, float], ...]
    """Size and bytes of each figure."""
    fixed_bytes: float
    step_bytes: float
    """What one sample, user, step or token adds; of cards: what all of them share."""
    asked: tuple[Size, ...]
    """Further sizes that the question names."""
    capacity_bytes: float | None
    usable_bytes: float | None
    """How much of the card may be used: all of what a person states as the limit, of a card a little less."""
    global_batch: int | None = None

    def amount(self, size: Size) -> float:
        """How often what one of the size takes: per card, what all share is divided among them.

        Where users or samples have lengths, one of them is one of the length at which the first figure was measured.
        """
        if self.field == "cards":
            return 1 / size.value
        tokens = self.points[0][0].tokens
        return size.value * (size.tokens / tokens if size.tokens and tokens else 1.0)

    def bytes_at(self, size: Size) -> float:
        """What the run would take at this size."""
        return self.fixed_bytes + self.step_bytes * self.amount(size)

    @property
    def fits(self) -> tuple[bool | None, ...]:
        """Whether each size that is asked about fits; ``None`` where that is not certain."""
        if self.capacity_bytes is None or self.usable_bytes is None:
            return ()
        bounds = [self.bounds(size) for size in self.asked]
        return tuple(
            True if high <= self.usable_bytes else False if low > self.capacity_bytes else None for low, high in bounds
        )

    def bounds(self, size: Size) -> tuple[float, float]:
        """Between how many bytes it takes at this size: equal on a line through several figures."""
        (_, held), line = self.points[0], self.bytes_at(size)
        return (line, line) if self.is_line else (min(held, line), max(held, line))

    @property
    def is_line(self) -> bool:
        """Whether it is known how much of the figures does not depend on the size."""
        return len(self.points) > 1 or self.fixed_bytes > 0


def measured_line(evidence: Evidence, capacity_bytes: float | None) -> MeasuredLine | None:
    """The least-squares line through the figures of one size, or through one whose constant part is stated."""
    told = [s.data for s in evidence.find("worked-at") if s.data.get("measured")]
    told = told or [s.data for s in evidence.find("held-at")]
    points = sorted({(_size(d), float(d["shown_bytes"])) for d in told}, key=lambda point: point[0].value)
    if not points or len({d["field"] for d in told}) > 1 or len({size.value for size, _ in points}) < len(points):
        return None
    beside = [s.data for s in evidence.find("size-beside")]
    further = {_size(d) for d in beside if "value" in d} - {size for size, _ in points}
    if len({size.tokens for size in (*further, *(size for size, _ in points))} - {None}) < 2:
        points = [(Size(size.value), held) for size, held in points]  # all of one length
        further = {Size(size.value) for size in further} - {size for size, _ in points}
    asked = sorted(further, key=lambda size: (size.value, size.tokens or 0))
    fixed = next((float(d["fixed_bytes"]) for d in beside if 0 < d.get("fixed_bytes", 0) < points[0][1]), 0.0)
    line = MeasuredLine(
        field=told[0]["field"],
        points=tuple(points),
        fixed_bytes=fixed,
        step_bytes=0.0,
        asked=tuple(asked),
        **_room(evidence, beside, points, capacity_bytes, host=any(d.get("host") for d in told)),
        global_batch=next((d["global_batch"] for d in beside if "global_batch" in d), None),
    )
    amounts = [line.amount(size) for size, _ in points]
    if len(points) == 1:  # at most all of it grows with the size
        return replace(line, step_bytes=(points[0][1] - fixed) / amounts[0])
    mean, bytes_mean = fmean(amounts), fmean(held for _, held in points)
    spread = sum((x - mean) ** 2 for x in amounts)
    if not spread:
        return None
    step = sum((x - mean) * (held - bytes_mean) for x, (_, held) in zip(amounts, points, strict=True)) / spread
    fixed = bytes_mean - step * mean
    return replace(line, fixed_bytes=fixed, step_bytes=step) if step > 0 and fixed >= 0 else None


def _size(data: Mapping[str, Any]) -> Size:
    return Size(data["value"], data.get("tokens"))


def _room(
    evidence: Evidence,
    beside: Sequence[Mapping[str, Any]],
    points: Sequence[tuple[Size, float]],
    capacity_bytes: float | None,
    *,
    host: bool,
) -> dict[str, float | None]:
    """What the run may take: a stated limit to the last byte, else the machine or the smallest card in question."""
    limit = min((float(d["limit_bytes"]) for d in beside if "limit_bytes" in d), default=None)
    if limit is not None:
        return {"capacity_bytes": limit, "usable_bytes": limit}
    if host:
        capacity_bytes = (evidence.value("host_gib") or 0.0) * GIB or None
    card = capacity_bytes if capacity_bytes not in [held for _, held in points] else None
    sizes = [d["size_bytes"] for d in beside if "size_bytes" in d]
    room = max((size for size in sizes if size >= points[-1][1]), default=None)
    card = min((size for size in (card, room) if size), default=None)
    return {"capacity_bytes": card, "usable_bytes": _USABLE * card if card else None}


_TOLD: Final = frozenset({"solved", "printed-table"})
"""Outcomes that have an answer of their own."""


_OF_CARD: Final[Mapping[str, Answer]] = {"answer.pools-card": "fits", "answer.pools-card-tight": "tight"}


def of_own_figures(
    evidence: Evidence, capacity_bytes: float | None, *, priced: bool
) -> tuple[Answer | None, tuple[Message, ...]] | None:
    """The answer that a person's own figures give without the memory model, and whether what is asked about fits.

    :param priced: whether the model can price the run: then it carries a figure over itself, unless a line of several
        reaches what is asked about.
    """
    if evidence.outcome is not None and evidence.outcome.name in _TOLD:
        return None
    if said := tuple(pools(evidence)):
        return _OF_CARD.get(said[0].key), said
    if shares := tuple(pool_shares(evidence)):
        return None, shares
    if divided := () if priced else tuple(_divided(evidence, capacity_bytes)):
        return None, divided
    line = measured_line(evidence, capacity_bytes)
    if priced and line is not None and not (line.is_line and line.asked):
        line = None  # the memory model carries the figures over, and says what they mean
    if line is None or (not line.is_line and not line.asked):
        return None
    answer: Answer | None = None
    if line.capacity_bytes is not None:
        answer = "fits" if all(line.fits) else "does-not-fit" if any(f is False for f in line.fits) else "tight"
    return answer, tuple(by_measured_line(line))


def beside_failure(evidence: Evidence, capacity_bytes: float | None) -> Iterator[Message]:
    """What a failed run takes at its size by the figures that a person measured at others."""
    line = measured_line(evidence, capacity_bytes)
    if line is not None and len(line.points) > 1 and line.asked and line.field != "step":
        yield from by_measured_line(line)


_LEFT_BYTES: Final = 1.5 * GIB
"""Of each card, for the cache, the workspace and CUDA itself, where layers of a file are put on it."""


def _divided(evidence: Evidence, capacity_bytes: float | None) -> Iterator[Message]:
    """How many requests a stated cache holds; how many layers of a file of a stated size the cards hold."""
    for signal in evidence.find("pool-of"):
        tokens, each = signal.data["tokens"], signal.data["each"]
        yield say("answer.pool-of", tokens=tokens, each=each, count=tokens // each)
        if asked := signal.data.get("asked"):
            yield say("answer.pool-of-asked", count=asked, needed=asked * each, tokens=tokens)
            if asked * each > tokens and (pool := signal.data.get("pool_bytes")):
                yield say("answer.pool-larger", pool_bytes=pool, needed_bytes=asked * each / tokens * pool)
    if capacity_bytes is None or asked_of(evidence).wanted != "layers":
        return
    room = (evidence.value("gpu_count") or 1) * max(0.0, capacity_bytes - _LEFT_BYTES)
    for signal in evidence.find("file-of"):
        size, layers = signal.data["size_bytes"], signal.data["layers"]
        on = min(layers, int(room / (size / layers)))
        yield say(
            "answer.file-of", each_bytes=size / layers, on=on, layers=layers, left_bytes=_LEFT_BYTES, size_bytes=size
        )


def by_measured_line(line: MeasuredLine) -> Iterator[Message]:
    """Whether what is asked about fits, by the person's figures alone."""
    if line.fits:
        some = "some" if False in line.fits and True in line.fits else "no" if False in line.fits else "perhaps"
        yield say(f"answer.own-{'yes' if all(line.fits) else some}")
    if not line.is_line:
        yield from _by_one_figure(line)
        return
    step = line.step_bytes * _UNIT[line.field]
    yield say(f"answer.own-line-{line.field}".replace("_", "-"), step_bytes=step, fixed_bytes=line.fixed_bytes)
    listed = [say("answer.own-point", size_bytes=y, name=_of_size(line.field, size)) for size, y in line.points]
    runs = [
        _run(_of_size(line.field, size), line.bytes_at(size), line.capacity_bytes, line.usable_bytes)
        for size in line.asked
    ]
    runs += _most(line)
    if runs:
        yield say("answer.own-figures", points=listed, runs=runs)
    most = _most_that_fits(line, line.usable_bytes)
    if line.field == "micro_batch" and line.global_batch and most and line.global_batch % most == 0:
        yield say("answer.own-accumulated", count=most, steps=line.global_batch // most, batch=line.global_batch)


def _most_that_fits(line: MeasuredLine, room_bytes: float | None) -> int:
    """The largest size, or the fewest cards, with which the run takes no more than there is."""
    if room_bytes is None or room_bytes <= line.fixed_bytes:
        return 0
    amount = (room_bytes - line.fixed_bytes) / line.step_bytes
    grain = _GRAIN[line.field]
    return math.ceil(1 / amount) if line.field == "cards" else int(amount) // grain * grain


def _most(line: MeasuredLine) -> Iterator[Message]:
    """The largest that fits with some room, and what fits by arithmetic alone."""
    most, exact = (_most_that_fits(line, room) for room in (line.usable_bytes, line.capacity_bytes))
    if not most:
        return
    if line.field == "step":
        yield say("answer.own-reached", size_bytes=line.capacity_bytes, name=_named(line.field, exact))
        return
    key = "fewest" if line.field == "cards" else "largest"
    yield say(f"answer.own-{key}", name=_named(line.field, most), size_bytes=line.bytes_at(Size(most)))
    if exact != most:
        yield say("answer.own-exact", name=_named(line.field, exact), size_bytes=line.bytes_at(Size(exact)))


def _of_size(field: str, size: Size) -> Message:
    if size.tokens is None:
        return _named(field, size.value)
    return say(f"{_NAMES[field]}-of", value=f"{size.value:,}", tokens=size.tokens)


def _by_one_figure(line: MeasuredLine) -> Iterator[Message]:
    """Between what the sizes that are asked about lie, where one figure is known: how much of it is fixed is not."""
    for size in line.asked:
        low, high = line.bounds(size)
        yield say("answer.own-between", name=_of_size(line.field, size), low_bytes=low, high_bytes=high)
    ((size, held),) = line.points
    yield say("answer.own-second", point=say("answer.own-point", size_bytes=held, name=_of_size(line.field, size)))


_UNIT: Final = {"micro_batch": 1, "seq_len": 1024, "users": 1, "step": 100, "cards": 1}
"""Samples, tokens, users or steps by which a line is described."""


def pool_shares(evidence: Evidence) -> Iterator[Message]:
    """How many users a cache holds, where a person says which share of it so many take."""
    for signal in evidence.find("pool-share"):
        users, share, tokens = signal.data["users"], signal.data["share"], signal.data.get("tokens")
        full = int(users / share)
        yield say("answer.pool-share", users=users, share=share, full=full)
        if tokens:
            yield say("answer.pool-tokens", each=round(tokens * share / users), tokens=tokens)
        for asked, longer in signal.data["asked"]:
            wanted = asked / users * share * longer
            yield say("answer.pool-asked" if wanted <= 1 else "answer.pool-asked-not", users=asked, share=wanted)
            if wanted > 1 and (pool := signal.data.get("pool_bytes")):
                yield say("answer.pool-larger", pool_bytes=pool, needed_bytes=wanted * pool)


_CONTEXT_BYTES: Final = 1.0 * GIB
"""What CUDA and its libraries take of a card beside what PyTorch reserves: 0.3 to 1 GiB."""


def pools(evidence: Evidence) -> Iterator[Message]:
    """How what tensors take, what PyTorch keeps and what nvidia-smi shows fit together, where a person gives them."""
    for signal in evidence.find("pools"):
        given: dict[str, Any] = dict(signal.data)
        reserved, allocated, shown = (given.get(f"{name}_bytes") for name in ("reserved", "allocated", "shown"))
        sizes = {"reserved_bytes": reserved or 0.0}
        if allocated is not None:
            smaller = [card for card in given["cards_bytes"] if allocated < card < (shown or reserved or 0)]
            for card in smaller[:1]:
                need = allocated / _USABLE + _CONTEXT_BYTES
                key = "answer.pools-card" if need <= card else "answer.pools-card-tight"
                yield say(key, card_bytes=card, allocated_bytes=allocated, context_bytes=_CONTEXT_BYTES)
        if allocated is not None and reserved is not None:
            yield say("answer.pools-kept", allocated_bytes=allocated, kept_bytes=reserved - allocated, **sizes)
        if shown is not None and reserved is not None:
            yield say("answer.pools-shown", shown_bytes=shown, context_bytes=shown - reserved, **sizes)
        elif shown is not None and allocated is not None:
            yield say("answer.pools-gap", shown_bytes=shown, allocated_bytes=allocated, gap_bytes=shown - allocated)
        yield say("answer.pools-normal")
