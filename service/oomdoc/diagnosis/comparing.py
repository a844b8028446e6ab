"""What a question compares, side by side: what each alternative needs and holds, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.forms import (
    FITS,
    Side,
    beyond_share,
    counts_for,
    fewest_cards,
    host_is_short,
    needed_of,
    verdict_on,
)
from oomdoc.diagnosis.planning.planner import mildest_plan
from oomdoc.diagnosis.planning.quantities import largest_of
from oomdoc.diagnosis.run_words import cards_of, names_of, shared_of, step_of
from oomdoc.evidence import Message, say
from oomdoc.intake.asked import NOTHING_ASKED, Asked
from oomdoc.intake.wanted import Wanted
from oomkb.dataclass import dataclass
from oomkb.errors import ARITHMETIC_ERRORS, OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import device_of
from oomkb.units import GIB

_MAX_REMEDIED_SIDES: Final = 2
"""Alternatives that do not fit and are planned for: a plan takes some tenths of a second."""
_MAX_CHANGES_OF_A_SIDE: Final = 4


@dataclass(frozen=True, slots=True)
class Plain:
    """What an answer is about."""

    stated: Job
    """As stated, with what was chosen marked as assumed."""
    job: Job
    """Completed."""
    estimate: Estimate
    careful: bool
    asked: Asked = NOTHING_ASKED
    sides: tuple[Side, ...] = ()
    """Every run that the question asks about, where these are several, priced."""
    printed_tokens: float | None = None
    """What the engine's own log says that its cache holds."""

    @property
    def wanted(self) -> Wanted:
        """What is asked; the largest batch of a server is how many requests it holds."""
        return "requests" if self.asked.wanted == "batch" and self.estimate.served is not None else self.asked.wanted

    @property
    def compared(self) -> frozenset[str]:
        """Fields in which the compared runs differ: as the question sets them, and how each model is stored."""
        formats = {(p.job.quant, p.job.param_dtype) for side in self.sides if (p := side.priced) is not None}
        stored = {"quant"} if len(formats) > 1 else set()
        return frozenset(name for side in self.sides for name in side.asked.fields) | stored

    @property
    def answer(self) -> str:
        """``fits tight does-not-fit``, ``unknown`` without a card."""
        return "does-not-fit" if host_is_short(self.job, self.estimate) else verdict_on(self.estimate)


def enough_cards(about: Plain) -> Iterator[Message]:
    """How many cards hold the run, where that is asked and those that are named do not."""
    stated = about.stated.world or (about.stated.gpus or 0) * (about.stated.nodes or 1)
    if about.wanted != "cards" or about.sides or "gpus" in about.stated.assumed or not stated:
        return
    if about.answer == "fits" or about.estimate.capacity_bytes is None:
        return
    priced = fewest_cards(about.stated, [count for count in counts_for(about.stated) if count > stated])
    if priced is not None:
        yield say("answer.cards-enough", cards=cards_of(priced.job), needed_bytes=needed_of(priced.estimate))


def comparison(about: Plain) -> Iterator[Message]:
    """A verdict and a figure for each run that is asked about, in the order of the question, and what they share."""
    if not about.sides:
        return
    yield from map(_verdict, about.sides)
    yield from _difference(about)
    counted = about.asked.concurrency is not None and any(side.capacity_bytes is not None for side in about.sides)
    if (about.wanted == "requests" or counted) and all(side.requests is not None for side in about.sides):
        held = [say("answer.side-requests", name=names_of(s.asked), requests=s.requests) for s in about.sides]
        yield say("answer.compared-requests", sides=held)
    yield from _caches_of_sides(about)
    if about.wanted in ("batch", "length"):
        yield from _largest_of_sides(about)
    yield from _remedies_of_sides(about)
    yield from _speeds_of_cards(about)
    job = about.job
    yield say("answer.compared-run", parts=shared_of(job, about.compared))
    named = [side.asked.name.lower().startswith("zero") for side in about.sides]
    stages = [str(side.fields.get("sharding", "")) for side in about.sides]
    if (job.world or 1) == 1 and any(stage.startswith("zero") for stage in stages):
        yield say("answer.zero-alone" if any(named) else "answer.several-split")
    if all(side.fits for side in about.sides) and all(named):
        yield say("answer.compared-shards")


def _caches_of_sides(about: Plain) -> Iterator[Message]:
    """What the KV cache of each alternative holds, where an engine takes its share of a card."""
    served = [
        (side.asked, side.priced.estimate.served) for side in about.sides if side.fits and side.priced is not None
    ]
    pools = [(asked, one) for asked, one in served if one is not None and one.shared_bytes and one.token_bytes]
    if len(pools) < len(about.sides):
        return
    sizes = [(asked, one.cache_bytes / one.token_bytes, one.cache_bytes) for asked, one in pools]
    yield say(
        "answer.compared-caches",
        sides=[
            say("answer.side-cache", name=names_of(a), tokens=f"{int(n) // 1000 * 1000:,}", size_bytes=b)
            for a, n, b in sizes
        ],
    )


def _speeds_of_cards(about: Plain) -> Iterator[Message]:
    """How fast servers on different cards read their memory, which bounds the speed of one user's tokens."""
    priced = [(side.asked, side.priced.job) for side in about.sides if side.priced is not None]
    cards = [(asked, card) for asked, job in priced if (card := device_of(job)) is not None]
    speeds = [(asked, card.bandwidth_bytes_per_s) for asked, card in cards if card.bandwidth_bytes_per_s]
    if about.estimate.served is None or len({card.name for _, card in cards}) < 2 or len(speeds) < len(cards):
        return
    told = [say("answer.side-speed", name=names_of(asked), speed=f"{speed / 1e9:,.0f}") for asked, speed in speeds]
    yield say("answer.compared-speeds", sides=told)
    if any((job.gpus or 1) > (job.tp or 1) for _, job in priced):
        yield say("answer.compared-in-turn")


def _difference(about: Plain) -> Iterator[Message]:
    """By how much one of two ways to do the same takes less."""
    needs = [(side.needed_bytes, side) for side in about.sides if side.needed_bytes is not None]
    if len(about.sides) != 2 or len(needs) != 2 or not _OF_A_WAY.isdisjoint(about.compared):
        return
    (least, less), (most, _) = sorted(needs, key=lambda one: one[0])
    if most - least >= _MIN_DIFFERENCE_BYTES:
        yield say("answer.compared-less", name=names_of(less.asked), size_bytes=most - least)


_OF_A_WAY: Final = frozenset({"model", "params_b", "gpu", "gpus", "capacity_gib", "nodes"})
"""Fields in which compared runs are different runs, not two ways to do one."""
_MIN_DIFFERENCE_BYTES: Final = 0.1 * GIB


def _largest_of_sides(about: Plain) -> Iterator[Message]:
    """The largest batch or length of each alternative."""
    names = ("micro_batch",) if about.wanted == "batch" else ("seq_len", "serving.max_model_len")
    if any(name in side.fields for side in about.sides for name in names):
        return  # the sides are themselves sizes of that kind
    found = []
    for side in about.sides:
        try:
            sizes = largest_of(about.stated.with_fields(side.fields), careful=about.careful, wanted=FITS)
        except OomdocError:
            return
        most = next((sizes[n] for n in names if n in sizes), None)
        if most:
            found.append(say("answer.side-most", name=names_of(side.asked), most=f"{most:,}"))
    if found:
        yield say(f"answer.compared-{about.wanted}", sides=found)


_OF_A_REQUEST: Final = frozenset({"seq_len", "serving.max_model_len", "serving.concurrency"})


def _remedies_of_sides(about: Plain) -> Iterator[Message]:
    """What would make an alternative fit that does not: the question may well be which of them can be had at all."""
    lacking = [side for side in about.sides if side.fits is False and side.priced is not None]
    needed_by_each = about.asked.request_length and about.asked.concurrency  # a shorter context serves none of them
    needs = _OF_A_REQUEST if needed_by_each else frozenset[str]()
    for side in lacking[:_MAX_REMEDIED_SIDES]:
        try:
            plan = mildest_plan(
                about.stated.with_fields(side.fields), {*side.fields, *needs}, careful=about.careful, wanted=FITS
            )
        except (OomdocError, *ARITHMETIC_ERRORS):
            continue
        if plan is not None and len(plan.changes) <= _MAX_CHANGES_OF_A_SIDE:
            changes = [step_of(change) for change in plan.changes]
            host = plan.estimate.host_bytes
            key = "answer.side-with-host" if host >= GIB else "answer.side-with"
            needed = needed_of(plan.estimate)
            yield say(key, name=names_of(side.asked), changes=changes, needed_bytes=needed, host_bytes=host)


def _verdict(side: Side) -> Message:
    """Yes or no, and what it needs; only just where it is less than the card holds, and more than to count on."""
    if side.priced is None:
        return say("answer.side-refused", name=names_of(side.asked), problem=side.problem)
    estimate, have = side.priced.estimate, (side.priced.job.host_gib or 0.0) * GIB
    assert side.needed_bytes is not None
    values: dict[str, Any] = {"needed_bytes": side.needed_bytes, "capacity_bytes": side.capacity_bytes}
    if side.fits is None:
        key = "amount"
    elif host_is_short(side.priced.job, estimate):
        key, values = "host-short", {**values, "host_bytes": estimate.host_bytes, "have_bytes": have}
    elif side.fits:
        key = "fits"
    elif (beyond := beyond_share(side.priced.job, estimate)) is not None:
        key, sizes = beyond
        values |= sizes
    else:
        key = "tight" if verdict_on(estimate) == "tight" else "not"
    return say(f"answer.side-{key}", name=names_of(side.asked), **values)
