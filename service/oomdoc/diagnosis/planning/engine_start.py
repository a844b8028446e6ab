"""A generation engine whose share of the card is too small to start: the share with which it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Variant, remedy
from oomdoc.diagnosis.planning.moves import Move, variants_on
from oomdoc.diagnosis.planning.prices import Price, Prices
from oomkb.memory.job import Job

_SHORT: Final = "estimate.rollout-short"
_SHARE: Final = "rollout.gpu_memory_utilization"
_HIGHEST: Final = 0.9
_STEP: Final = 0.05


@remedy("same-numbers", "rl")
def rollout_utilization(job: Job, context: Context) -> Iterator[Variant]:
    """More than the stated share, up to what a card has to spare; less than it is the remedy of this name."""
    now = job.get(_SHARE)
    if now is not None and context.has("rollout"):
        for n in range(1, int((_HIGHEST - now) / _STEP + 1e-9) + 1):
            yield Variant(fields={_SHARE: round(now + n * _STEP, 2)}, effort=0.2)


def share_that_starts(prices: Prices, context: Context) -> Move | None:
    """The least share with which the engine starts, where the stated one is too small for that."""
    if not _is_short(prices.base):
        return None
    variants = variants_on(rollout_utilization, prices.job, context)
    moves = (Move(rollout_utilization, variant, dict(variant.fields)) for variant in variants)
    priced = ((move, prices.of(move.fields)) for move in moves)
    return next((move for move, price in priced if price is not None and not _is_short(price)), None)


def _is_short(price: Price) -> bool:
    return any(warning.key == _SHORT for warning in price.estimate.warnings)
