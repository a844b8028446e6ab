"""Before a run: does it fit, what is the largest that does, and which knob buys what."""

from __future__ import annotations

from oomdoc.diagnosis.fixes import REMEDIES, Context
from oomdoc.diagnosis.planning.changes import single_fix
from oomdoc.diagnosis.planning.effort import safety_of
from oomdoc.diagnosis.planning.moves import offered
from oomdoc.diagnosis.planning.planner import context_for, plan_with
from oomdoc.diagnosis.planning.prices import Prices
from oomdoc.diagnosis.planning.result import Knob, Table
from oomkb.memory.job import Job


def fits_table(
    job: Job,
    gpu: str | None = None,
    gpus: int | None = None,
    *,
    careful: bool | None = None,
    wanted: float = 0.9,
    fixed_hardware: bool = False,
) -> Table:
    """The table for a job on ``gpus`` cards named ``gpu`` (as in the job where ``None``).

    Knobs are single changes, those that save most first; hardware comes last.

    :param careful: whether open fields are filled as a careful person starts; by default where no framework is named.
    :param fixed_hardware: whether plans may change neither the cards nor their number.
    :raises JobError: for a job that cannot be priced.
    """
    hardware = frozenset(r.name for r in REMEDIES if r.hardware)
    changes = {name: value for name, value in (("gpu", gpu), ("gpus", gpus)) if value is not None}
    if gpus is not None and job.world is None:
        changes["world"] = gpus * (job.nodes or 1)
    prices = Prices(
        job.with_fields(changes) if changes else job, careful=job.framework is None if careful is None else careful
    )
    context = context_for(prices, Context(without=hardware if fixed_hardware else frozenset()))
    base = prices.base
    knobs = []
    for move in offered(prices.job, context):
        price = None if move.needs else prices.of(move.fields)
        if price is None:
            continue
        change = single_fix(prices.job, move, price, prices, wanted).change
        peak = round(price.estimate.process_bytes)
        knobs.append(Knob(change, peak, price.probability, price.speed, safety_of([move])))
    knobs.sort(key=lambda k: (k.change.remedy in hardware, -k.change.saves_bytes, k.change.remedy, str(k.change.new)))
    return Table(
        estimate=base.estimate,
        fits=None if prices.capacity_bytes is None else base.probability >= 0.5,
        fits_probability=None if prices.capacity_bytes is None else base.probability,
        knobs=tuple(k for k in knobs if k.change.saves_bytes > 0 or k.change.remedy in hardware),
        planning=plan_with(prices, context, wanted=wanted),
    )
