"""What a search moves in: the moves with their prices and effects, and which of them get on with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from oomdoc.diagnosis.fixes import Context, Remedy, Variant
from oomdoc.diagnosis.planning.moves import Move, derive, merge, variants_on
from oomdoc.diagnosis.planning.prices import Price, Prices
from oomdoc.diagnosis.planning.surrogate import Effect, Surrogate
from oomkb.dataclass import dataclass

_BEFORE_STEPS = ("load", "rollout")
"""Phases that a run which fails in a training step has been through: what they need, the card had."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A move with its own price and effect."""

    move: Move
    price: Price
    effect: Effect


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched: the prices, the moves with their effects, and which pairs of moves are compatible."""

    prices: Prices
    surrogate: Surrogate
    singles: Sequence[Priced]
    context: Context
    wanted: float
    relief: tuple[str, float] | None = None
    """The phase that failed, and the bytes to which its tensors must fall."""
    pairs: dict[tuple[str, str], bool] = field(default_factory=dict)
    after: dict[tuple[str, str], list[Variant]] = field(default_factory=dict)

    def enough(self, price: Price) -> bool:
        """Whether a price fits, and the phase that failed is as much smaller as it was short."""
        if self.relief is None:
            return price.probability >= self.wanted
        name, most = self.relief
        base = self.prices.base
        passed = base.estimate.peak_phase in _BEFORE_STEPS and name not in _BEFORE_STEPS
        if price.probability < (min(self.wanted, base.probability) if passed else self.wanted):
            return False
        phase = price.estimate.phases.get(name)
        return phase is None or phase.total_bytes <= most

    def compatible(self, a: Move, b: Move) -> bool:
        """Whether either is still offered once the other is done."""
        key = (a.key, b.key) if a.key < b.key else (b.key, a.key)
        if key not in self.pairs:
            self.pairs[key] = self._follows(a, b) and self._follows(b, a)
        return self.pairs[key]

    def _follows(self, first: Move, then: Move) -> bool:
        if not first.names.isdisjoint(then.names):
            return False
        wanted = merge(first.fields, then.fields)
        if wanted is None:
            return False
        (remedy, variant), *further = then.all_parts
        if not _among(self._offered_after(first, remedy), variant, wanted):
            return False
        job = self.prices.job_with(first.fields)
        for following, next_variant in further:
            job = derive(job, variant.fields) if job is not None else None
            if job is None or not _among(variants_on(following, job, self.context), next_variant, wanted):
                return False
            variant = next_variant
        return True

    def _offered_after(self, first: Move, remedy: Remedy) -> list[Variant]:
        """What a remedy offers once a move is done; asked for every variant of the remedy."""
        key = (first.key, remedy.name)
        if key not in self.after:
            job = self.prices.job_with(first.fields)
            self.after[key] = [] if job is None else variants_on(remedy, job, self.context)
        return self.after[key]


def _among(options: Sequence[Variant], variant: Variant, wanted: Mapping[str, Any]) -> bool:
    """Whether a variant, or a wider one that says the same, is among the options."""
    names = variant.fields.keys()
    return any(names <= o.fields.keys() and merge(wanted, o.fields) == wanted for o in options)
