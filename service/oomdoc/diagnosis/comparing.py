"""What a question compares, side by side: what each alternative needs and holds, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from oomdoc.diagnosis.forms import FITS, Side, beyond_share, host_is_short, needed_of, verdict_on
from oomdoc.diagnosis.run_words import names_of, shared_of, step_of
from oomdoc.intake.asked import Asked
from oomdoc.intake.wanted import Wanted
from oomdoc.messages import Message, say
from oomkb.dataclass import dataclass
from oomkb.errors import ARITHMETIC_ERRORS, OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
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
    asked: Asked = field(default_factory=Asked)
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
        """Fields in which the compared runs differ as the question sets them."""
        return frozenset(name for side in self.sides for name in side.asked.fields)

    @property
    def answer(self) -> str:
        """``fits tight does-not-fit``, ``unknown`` without a card."""
        return "does-not-fit" if host_is_short(self.job, self.estimate) else verdict_on(self.estimate)


def comparison(about: Plain) -> Iterator[Message]:
    """A verdict and a figure for each run that is asked about, in the order of the question, and what they share."""
    if not about.sides:
        return
    yield from map(_verdict, about.sides)
    yield from _difference(about)
    if asks_for_requests(about) and all(side.requests is not None for side in about.sides):
        yield say("answer.compared-requests", sides=[_holds(side) for side in about.sides])
    if about.wanted in ("batch", "length"):
        yield from _largest_of_sides(about)
    yield from _remedies_of_sides(about)
    job = about.job
    yield say("answer.compared-run", parts=shared_of(job, about.compared))
    stages = [str(side.fields.get("sharding", "")) for side in about.sides]
    if (job.world or 1) == 1 and any(stage.startswith("zero") for stage in stages):
        asked = any(side.asked.name.lower().startswith("zero") for side in about.sides)
        yield say("answer.zero-alone") if asked else say("answer.several-split")
    if all(side.fits for side in about.sides) and all(
        side.asked.name.lower().startswith("zero") for side in about.sides
    ):
        yield say("answer.compared-shards")


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


def asks_for_requests(about: Plain) -> bool:
    """Whether it is asked how many requests a server holds at once, or whether so many."""
    return about.wanted == "requests" or (about.asked.concurrency is not None and _on_cards(about))


def _on_cards(about: Plain) -> bool:
    return any(side.capacity_bytes is not None for side in about.sides)


def _largest_of_sides(about: Plain) -> Iterator[Message]:
    """The largest batch or length of each alternative."""
    from oomdoc.diagnosis.planning import largest_of

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


def _remedies_of_sides(about: Plain) -> Iterator[Message]:
    """What would make an alternative fit that does not: the question may well be which of them can be had at all."""
    from oomdoc.diagnosis.planning import mildest_plan

    lacking = [side for side in about.sides if side.fits is False and side.priced is not None]
    for side in lacking[:_MAX_REMEDIED_SIDES]:
        try:
            plan = mildest_plan(about.stated.with_fields(side.fields), side.fields, careful=about.careful, wanted=FITS)
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


def _holds(side: Side) -> Message:
    return say("answer.side-requests", name=names_of(side.asked), requests=side.requests)
