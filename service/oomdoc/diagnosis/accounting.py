"""Why a training run holds what it holds: bytes of each trained parameter, and what would lower the peak most."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.run_words import step_of
from oomdoc.messages import Message, say
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
