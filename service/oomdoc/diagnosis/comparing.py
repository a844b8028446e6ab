"""What a question compares, side by side: what each alternative needs and holds, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from oomdoc.diagnosis.forms import FITS, Side, host_is_short, needed_of
from oomdoc.diagnosis.run_words import cards_of, run_of, step_of
from oomdoc.intake.asked import Asked, Wanted
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
    """What the question compares."""
    further: tuple[tuple[Side, ...], ...] = ()
    """What it compares beside that, in other settings."""
    printed_tokens: float | None = None
    """What the engine's own log says that its cache holds."""

    @property
    def wanted(self) -> Wanted:
        """What is asked."""
        return self.asked.wanted

    @property
    def answer(self) -> str:
        """``fits tight does-not-fit``, ``unknown`` without a card."""
        probability = self.estimate.fits_probability
        if host_is_short(self.job, self.estimate):
            return "does-not-fit"
        if probability is None:
            return "unknown"
        return "fits" if probability >= FITS else "tight" if probability > 1 - FITS else "does-not-fit"


def comparison(about: Plain) -> Iterator[Message]:
    """What each of the compared alternatives needs, and what is the same for all of them."""
    if not about.sides:
        return
    yield say("answer.compared", sides=[_side(side) for side in about.sides])
    if asks_for_requests(about) and all(side.requests is not None for side in about.sides):
        yield say("answer.compared-requests", sides=[_holds(side) for side in about.sides])
    if about.wanted in ("batch", "length"):
        yield from _largest_of_sides(about)
    for sides in about.further:
        yield say("answer.compared-also", sides=[_side(side) for side in sides])
    yield from _remedies_of_sides(about)
    job = about.job
    known = about.estimate.capacity_bytes is not None
    yield say("answer.compared-run" if known else "answer.compared-unknown", run=run_of(job), cards=cards_of(job))
    if (job.world or 1) == 1 and any(str(side.fields.get("sharding", "")).startswith("zero") for side in about.sides):
        yield say("answer.zero-alone")
    if all(side.fits for side in about.sides) and all(side.name.lower().startswith("zero") for side in about.sides):
        yield say("answer.compared-shards")


def asks_for_requests(about: Plain) -> bool:
    """Whether it is asked how many requests a server holds at once, or whether so many."""
    return about.wanted == "requests" or about.asked.concurrency is not None


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
            found.append(say("answer.side-most", name=side.name, most=f"{most:,}"))
    if found:
        yield say(f"answer.compared-{about.wanted}", sides=found)


def _remedies_of_sides(about: Plain) -> Iterator[Message]:
    """What would make an alternative fit that does not: the question may well be which of them can be had at all."""
    from oomdoc.diagnosis.planning import mildest_plan

    lacking = [side for side in about.sides if side.fits is False]
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
            yield say(key, name=side.name, changes=changes, needed_bytes=needed, host_bytes=host)


def _side(side: Side) -> Message:
    """What it needs; tight where it is less than the card holds, and more than one should count on."""
    if side.fits is False and side.capacity_bytes is not None and side.needed_bytes < side.capacity_bytes:
        key = "-tight"
    else:
        key = "" if side.fits is None else "-fits" if side.fits else "-not"
    return say(f"answer.side{key}", **{n: getattr(side, n) for n in ("name", "needed_bytes", "capacity_bytes")})


def _holds(side: Side) -> Message:
    return say("answer.side-requests", name=side.name, requests=side.requests)
