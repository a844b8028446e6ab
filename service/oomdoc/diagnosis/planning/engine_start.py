"""A generation engine whose share of the card is too small to start: the share with which it does."""

from __future__ import annotations

from oomdoc.diagnosis.fixes._remedy import Context
from oomdoc.diagnosis.fixes.rollout_utilization import HIGHER
from oomdoc.diagnosis.planning.moves import Move, variants_on
from oomdoc.diagnosis.planning.prices import Price, Prices

__all__ = ["share_that_starts"]

_SHORT = "estimate.rollout-short"


def share_that_starts(prices: Prices, context: Context) -> Move | None:
    """The least share with which the engine starts, where the stated one is too small for that."""
    if not _is_short(prices.base):
        return None
    moves = (Move(HIGHER, v, dict(v.fields)) for v in variants_on(HIGHER, prices.job, context))
    priced = ((move, prices.of(move.fields)) for move in moves)
    return next((move for move, price in priced if price is not None and not _is_short(price)), None)


def _is_short(price: Price) -> bool:
    return any(warning.key == _SHORT for warning in price.estimate.warnings)
