"""What a person's own figures say without the memory model: lines over one size, shares of a cache, files and pools."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import linear_regression
from typing import Any, Final

from oomdoc.diagnosis.accounts import CACHE_BYTES, Account, account_of
from oomdoc.diagnosis.forms import price_form
from oomdoc.diagnosis.own_figures import GRAIN, NAMES, USABLE, named, run_of
from oomdoc.diagnosis.result import Answer
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence, Message, say
from oomdoc.intake.asked import asked_of
from oomkb.dataclass import dataclass
from oomkb.pricing import device_of
from oomkb.units import GIB


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
    lengths = {size.tokens for size in (*further, *(size for size, _ in points))} - {None}
    totals = {size.tokens / size.value for size, _ in points if size.tokens}
    if len(lengths) < 2 or (len(points) > 1 and len(totals) == 1):  # of one length, or of all requests together
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
    if len(set(amounts)) < 2:
        return None
    step, fixed = linear_regression(amounts, [held for _, held in points])
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
    """What the run may take: a stated limit to the last byte, else the card in question or the machine."""
    limit = min((float(d["limit_bytes"]) for d in beside if "limit_bytes" in d), default=None)
    if limit is not None:
        return {"capacity_bytes": limit, "usable_bytes": limit}
    if host:
        capacity_bytes = (evidence.value("host_gib") or 0.0) * GIB or None
    card = capacity_bytes if capacity_bytes not in [held for _, held in points] else None
    sizes = [d["size_bytes"] for d in beside if "size_bytes" in d]
    if after := [d["size_bytes"] for d in beside if d.get("after")]:
        card, sizes = None, after  # the figures are of one machine, the question is about another
    room = max((size for size in sizes if size >= points[-1][1]), default=None)
    card = min((size for size in (card, room) if size), default=None)
    return {"capacity_bytes": card, "usable_bytes": USABLE * card if card else None}


_TOLD: Final = frozenset({"solved", "printed-table"})
"""Outcomes that have an answer of their own."""


_LARGEST: Final = {"batch": "micro_batch", "length": "seq_len"}
"""What is asked for at its largest, as the field in which the figures differ."""
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
    largest = line is not None and _LARGEST.get(asked_of(evidence).wanted) == line.field and line.capacity_bytes
    if priced and line is not None and not (line.is_line and (line.asked or largest)):
        line = None  # the memory model carries the figures over, and says what they mean
    if line is None or (not line.is_line and not line.asked):
        return None
    answer: Answer | None = None
    if line.capacity_bytes is not None:
        answer = "fits" if all(line.fits) else "does-not-fit" if any(f is False for f in line.fits) else "tight"
    return answer, tuple(by_measured_line(line))


def beside_failure(view: View) -> Iterator[Message]:
    """What a failed run takes at its size by the figures that a person measured at others."""
    line = measured_line(view.evidence, view.bytes_of("capacity"))
    if line is not None and len(line.points) > 1 and line.asked and line.field != "step":
        yield from by_measured_line(line)
    for fewer in _fewer_cards(view, line):
        yield say("answer.own-fewer-cards", **fewer)


def fewer_cards(view: View) -> Iterator[Account]:
    """It ran on more cards that share its states: with what the model says fewer of them add, it is more than each has.

    What activations take does not change with the cards; what each holds of the states does.
    """
    line = measured_line(view.evidence, view.bytes_of("capacity"))
    for sizes in _fewer_cards(view, line):
        if sizes["needed_bytes"] > sizes["capacity_bytes"]:
            outcome = view.evidence.outcome
            yield from account_of(view, "model-states", "fewer-cards", sizes, outcome.span if outcome else None)


_UNSPREAD: Final[Mapping[str, None]] = {"world": None, "dp": None, "nodes": None}
"""Fields of a layout that follow from the number of cards."""


def _fewer_cards(view: View, line: MeasuredLine | None) -> Iterator[dict[str, Any]]:
    """What one figure on so many cards, and the estimate's difference, say of each number of cards that is named."""
    device, said = device_of(view.job), view.bytes_of("capacity")
    capacity = min((size for size in (said, device.capacity_bytes if device else None) if size), default=None)
    if line is None or line.field != "cards" or len(line.points) != 1 or not capacity or not view.is_stated("model"):
        return
    ((before, held),) = line.points
    then = price_form(view.job, {"gpus": before.value, **_UNSPREAD}, careful=False)
    for size in line.asked[:1]:
        now = price_form(view.job, {"gpus": size.value, **_UNSPREAD}, careful=False)
        if then is None or now is None:
            return
        more = now.estimate.allocated_bytes - then.estimate.allocated_bytes
        if more > 0:
            sizes = {"held_bytes": held, "more_bytes": more, "needed_bytes": held + more, "capacity_bytes": capacity}
            yield {"before": before.value, "now": size.value, **sizes}


_LEFT_BYTES: Final = 1.5 * GIB
"""Of each card, for the cache, the workspace and CUDA itself, where layers of a file are put on it."""


def _divided(evidence: Evidence, capacity_bytes: float | None) -> Iterator[Message]:
    """How many requests a stated cache holds; how many layers of a file of a stated size the cards hold."""
    asks = asked_of(evidence)
    in_eight_bits = CACHE_BYTES.get(asks.settings.get("serving.kv_dtype", "")) == 1.0
    for signal in evidence.find("pool-of"):
        tokens, each = signal.data["tokens"], signal.data["each"]
        yield say("answer.pool-of", tokens=tokens, each=each, count=tokens // each)
        if asked := signal.data.get("asked"):
            yield say("answer.pool-of-asked", count=asked, needed=asked * each, tokens=tokens)
            if asked * each <= tokens:
                continue
            if pool := signal.data.get("pool_bytes"):
                yield say("answer.pool-larger", pool_bytes=pool, needed_bytes=asked * each / tokens * pool)
            if in_eight_bits:
                enough = "enough" if asked * each <= 2 * tokens else "short"
                yield say(f"answer.pool-halved-{enough}", tokens=2 * tokens, count=2 * tokens // each, asked=asked)
    if capacity_bytes is None or asks.wanted != "layers":
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
        run_of(_of_size(line.field, size), line.bytes_at(size), line.capacity_bytes, line.usable_bytes)
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
    grain = GRAIN[line.field]
    return math.ceil(1 / amount) if line.field == "cards" else int(amount) // grain * grain


def _most(line: MeasuredLine) -> Iterator[Message]:
    """The largest that fits with some room, and what fits by arithmetic alone."""
    most, exact = (_most_that_fits(line, room) for room in (line.usable_bytes, line.capacity_bytes))
    if not most:
        return
    if line.field == "step":
        yield say("answer.own-reached", size_bytes=line.capacity_bytes, name=named(line.field, exact))
        return
    key = "fewest" if line.field == "cards" else "largest"
    yield say(f"answer.own-{key}", name=named(line.field, most), size_bytes=line.bytes_at(Size(most)))
    if exact != most:
        yield say("answer.own-exact", name=named(line.field, exact), size_bytes=line.bytes_at(Size(exact)))


def _of_size(field: str, size: Size) -> Message:
    if size.tokens is None:
        return named(field, size.value)
    return say(f"{NAMES[field]}-of", value=f"{size.value:,}", tokens=size.tokens)


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
                need = allocated / USABLE + _CONTEXT_BYTES
                key = "answer.pools-card" if need <= card else "answer.pools-card-tight"
                yield say(key, card_bytes=card, allocated_bytes=allocated, context_bytes=_CONTEXT_BYTES)
        if allocated is not None and reserved is not None:
            yield say("answer.pools-kept", allocated_bytes=allocated, kept_bytes=reserved - allocated, **sizes)
        if shown is not None and reserved is not None:
            yield say("answer.pools-shown", shown_bytes=shown, context_bytes=shown - reserved, **sizes)
        elif shown is not None and allocated is not None:
            yield say("answer.pools-gap", shown_bytes=shown, allocated_bytes=allocated, gap_bytes=shown - allocated)
        yield say("answer.pools-normal")
