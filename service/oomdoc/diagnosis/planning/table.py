"""Before a run: does it fit, what is the largest that does, and which knob buys what."""

from __future__ import annotations

from typing import Final

from oomdoc.diagnosis.fixes import REMEDIES, Context
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.planning.changes import single_fix
from oomdoc.diagnosis.planning.moves import offered, safety_of
from oomdoc.diagnosis.planning.planner import context_for, plan_with
from oomdoc.diagnosis.planning.prices import Knob, Prices, Table
from oomkb.memory.job import Job

_WANTED: Final = 0.9
"""Probability that a plan fits."""


def fits_table(job: Job, *, careful: bool | None = None, fixed_hardware: bool = False) -> Table:
    """The table for a job.

    Knobs are single changes, those that save most first; hardware comes last.

    :param careful: whether open fields are filled as a careful person starts; by default where no framework is named.
    :param fixed_hardware: whether plans may change neither the cards nor their number.
    :raises JobError: for a job that cannot be priced.
    """
    hardware = frozenset(r.name for r in REMEDIES if r.hardware)
    prices = Prices(job, careful=job.framework is None if careful is None else careful)
    context = context_for(prices, Context(without=hardware if fixed_hardware else frozenset()))
    base = prices.base
    knobs = []
    for move in offered(prices.job, context):
        price = None if move.needs else prices.of(move.fields)
        if price is None:
            continue
        change = single_fix(prices.job, move, price, prices, None).change
        peak, needed = round(price.estimate.process_bytes), needed_of(price.estimate)
        knobs.append(Knob(change, peak, needed, price.probability, price.speed, safety_of([move])))
    knobs.sort(key=lambda k: (k.change.remedy in hardware, -k.change.saves_bytes, k.change.remedy, str(k.change.new)))
    return Table(
        estimate=base.estimate,
        fits=None if prices.capacity_bytes is None else base.probability >= 0.5,
        fits_probability=None if prices.capacity_bytes is None else base.probability,
        knobs=tuple(k for k in knobs if k.change.saves_bytes > 0 or k.change.remedy in hardware),
        planning=plan_with(prices, context, wanted=_WANTED),
    )
