"""What is open of a failed run is completed to a run that somebody might have started.

People start what they hope will fit. Of 21 public reports that state batch and checkpointing and name the framework,
the priced need is 0.8 of the card in the median and 2.3 times the card at the 90th percentile; of 26 where all three
are assumed the median is 4.9 times the card (``bench/usual_need.py``). The ranker of causes keeps the defaults, with
which its weights were fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.result import IMPLIED, Inference, Inferred
from oomdoc.evidence import Evidence, say
from oomkb.catalog import gpus
from oomkb.memory.estimate import Estimate, Interval, Later
from oomkb.memory.job import Assumption, Job
from oomkb.pricing import Priced, price_if_possible
from oomkb.units import GIB

MAX_NEED_OF_CARD: Final = 2.5
"""A run that needs more times its card than this is not supposed: the 90th percentile of stated ones, rounded up."""
_SMALLER: Final[tuple[Mapping[str, Any], ...]] = ({"grad_ckpt": True}, {"micro_batch": 1})
"""What makes a run smaller without changing what is trained, in the order in which it is supposed."""
WHY: Final = "the default would need many times the card"


def with_usual_need(evidence: Evidence, job: Job, priced: Priced) -> tuple[Job, Priced] | None:
    """The job with its open fields smaller, and its price; ``None`` where their defaults need no more than is usual.

    The largest of the smaller runs that is usual, else the smallest; as it failed, it did not need little. The interval
    reaches from that run to the usual limit, or to the run by its defaults where that is less.
    """
    root = evidence.root
    capacity = priced.estimate.capacity_bytes or (root.capacity_bytes if root is not None else None)
    if not capacity or priced.job.objective == "inference":
        return None
    most = MAX_NEED_OF_CARD * capacity
    if needed_of(priced.estimate) <= most:
        return None
    tried: list[tuple[Job, Priced]] = []
    for fields in _smaller(job, priced.job):
        found = job.assuming({name: Assumption(value, WHY) for name, value in fields.items()})
        if (smaller := price_if_possible(found)) is not None:
            tried.append((found, smaller))
    if not tried:
        return None
    tried.sort(key=lambda run: needed_of(run[1].estimate))
    usual = [run for run in tried if needed_of(run[1].estimate) <= most]
    found, smaller = usual[-1] if usual else tried[0]
    return found, replace(smaller, estimate=_up_to(smaller.estimate, priced.estimate, most))


def _smaller(job: Job, completed: Job) -> Iterator[dict[str, Any]]:
    """Open fields with smaller values, one alone first, then all of them."""
    changes = [
        fields
        for fields in _SMALLER
        if all(job.get(name) is None and completed.get(name) not in (None, value) for name, value in fields.items())
    ]
    for fields in changes:
        yield dict(fields)
    if len(changes) > 1:
        yield {name: value for fields in changes for name, value in fields.items()}


def _up_to(estimate: Estimate, default: Estimate, most: float) -> Estimate:
    """The estimate with intervals up to those of the run by its defaults, but to no more than the usual limit."""

    def spans() -> dict[str, Interval]:
        by_default = default.intervals
        return {
            meter: replace(span, high_bytes=max(span.high_bytes, min(by_default[meter].high_bytes, most)))
            for meter, span in estimate.intervals.items()
        }

    return replace(estimate, intervals=Later(spans))


def smaller_card(evidence: Evidence, job: Job, priced: Priced) -> Inference | None:
    """The run on a smaller card of the same name, where it failed and the larger one would surely hold it.

    "A V100" is a card of 32 GB or of 16, and nobody who runs out of memory has room to spare.
    """
    root, fits = evidence.root, priced.estimate.fits_probability
    outcome = evidence.outcome
    told = outcome is not None and outcome.tells_of_shortage and (root is None or root.kind == "device")
    stated = job.gpu is None or job.capacity_gib is not None or (root is not None and root.capacity_bytes)
    if not told or stated or not job.has_model or (fits or 0.0) < _SURELY_FITS:
        return None
    large, needed = priced.estimate.capacity_bytes or 0.0, needed_of(priced.estimate)
    sizes = {d.capacity_bytes for d in gpus.variants(str(job.gpu))}
    small = max((size for size in sizes if size < min(large, needed)), default=None)
    if small is None:
        return None
    known = job.assuming({"capacity_gib": Assumption(small / GIB, IMPLIED)})
    if (found := price_if_possible(known)) is None:
        return None
    why = say("inferred.smaller-card", small_bytes=small, large_bytes=large, needed_bytes=needed)
    return Inference(known, found, (Inferred("capacity_gib", round(small / GIB, 2), _OF_TWO_CARDS, why),))


_SURELY_FITS: Final = 0.9
_OF_TWO_CARDS: Final = 0.7
"""How sure it is that the smaller of two cards of a name is meant: some other reason may have failed the run."""
