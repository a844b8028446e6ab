"""What a search moves in: the moves with their prices and effects, and which of them get on with each other.

A cheap stand-in for the memory model while searching: the effect of several moves from their effects alone. Terms
mostly multiply (half the micro-batch, a quarter of the ranks' share), so a set of moves is taken to scale each term
of each phase by the product of the moves' own ratios; terms that a move brings in are added. Whatever the search
picks is priced by the real model before it is believed. Thousands of sets take a few array operations together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np

from oomdoc.diagnosis.fixes import Context, Remedy, Variant
from oomdoc.diagnosis.planning.moves import Move, derive, merge, variants_on
from oomdoc.diagnosis.planning.prices import Price, Prices
from oomkb.dataclass import dataclass
from oomkb.memory.estimate import Estimate

_LEVEL_TO_WANTED = 1.2816 / 1.6449
"""One-sided 90 % from the upper end of a two-sided 90 % interval, for a normal distribution of the logarithm."""


_SMALL: Final = 0.01


@dataclass(frozen=True, slots=True)
class Effect:
    """What one move does to every term: a ratio, and bytes that were not there before."""

    ratio: tuple[float, ...]
    added: tuple[float, ...]
    overhead: float
    """Ratio of what process memory holds beyond the largest phase."""


class Surrogate:
    """The base estimate as vectors, and effects on it."""

    def __init__(self, base: Estimate) -> None:
        largest = max(p.total_bytes for p in base.phases.values())
        # Small terms of a phase are carried as one, behind the others; they hardly move.
        small = _SMALL * largest
        self.starts: list[int] = []
        """Where each phase's terms begin."""
        self._phases: list[tuple[str, dict[str, int]]] = []
        """Each phase with the places of its terms."""
        values: list[float] = []
        for name, phase in base.phases.items():
            self.starts.append(len(values))
            large = {t: v for t, v in phase.terms_bytes.items() if v >= small}
            self._phases.append((name, {term: place for place, term in enumerate(large, len(values))}))
            values += [*large.values(), phase.total_bytes - sum(large.values())]
        self.base = tuple(values)
        self.overhead = max(1.0, base.process_bytes - largest)
        upper = base.intervals["process"].high_bytes / base.process_bytes if "process" in base.intervals else 1.15
        self.margin: float = max(1.0, upper) ** _LEVEL_TO_WANTED

    def effect(self, after: Estimate) -> Effect:
        """One move's effect, from its own real estimate."""
        ratio, added, base = [1.0] * len(self.base), [0.0] * len(self.starts), self.base
        for number, (name, places) in enumerate(self._phases):
            rest_at = self.starts[number] + len(places)
            if name not in after.phases:
                ratio[self.starts[number] : rest_at + 1] = [0.0] * (len(places) + 1)
                continue
            terms = after.phases[name].terms_bytes
            for term, place in places.items():
                if base[place] > 0:
                    ratio[place] = terms.get(term, 0.0) / base[place]
            rest = sum([size for term, size in terms.items() if term not in places])
            ratio[rest_at] = min(1.0, rest / base[rest_at]) if base[rest_at] > 0 else 1.0
            added[number] = max(0.0, rest - base[rest_at])
        overhead = after.process_bytes - max(p.total_bytes for p in after.phases.values())
        return Effect(tuple(ratio), tuple(added), max(0.0, overhead) / self.overhead)

    def start(self) -> Effect:
        """No move at all."""
        return Effect((1.0,) * len(self.base), (0.0,) * len(self.starts), 1.0)


BEFORE_STEPS = ("load", "rollout")
"""Phases that a run which fails in a training step has been through: what they need, the card had."""


def enough(price: Price, base: Price, wanted: float, relief: tuple[str, float] | None) -> bool:
    """Whether a price fits, and the phase that failed is as much smaller as it was short.

    :param base: that of the job as it failed.
    :param relief: the phase that failed, and the bytes to which its tensors must fall.
    """
    if relief is None:
        return price.probability >= wanted
    name, most = relief
    passed = base.estimate.peak_phase in BEFORE_STEPS and name not in BEFORE_STEPS
    if price.probability < (min(wanted, base.probability) if passed else wanted):
        return False
    phase = price.estimate.phases.get(name)
    return phase is None or phase.total_bytes <= most


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
        return enough(price, self.prices.base, self.wanted, self.relief)

    def compatible(self, a: Move, b: Move) -> bool:
        """Whether either is still offered once the other is done."""
        key = (a.key, b.key) if a.key < b.key else (b.key, a.key)
        if key not in self.pairs:
            both = merge(a.fields, b.fields) if a.names.isdisjoint(b.names) else None
            self.pairs[key] = both is not None and self._follows(a, b, both) and self._follows(b, a, both)
        return self.pairs[key]

    def _follows(self, first: Move, then: Move, wanted: Mapping[str, Any]) -> bool:
        (remedy, variant), *further = then.all_parts
        if not _among(self._offered_after(first, remedy), variant, wanted):
            return False
        job = self.prices.job_with(first.fields) if further else None
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


class Stacked:
    """The effects of candidates under one another, and one more of no move at all, at place -1."""

    def __init__(self, surrogate: Surrogate, effects: Sequence[Effect]) -> None:
        rows = [*effects, surrogate.start()]
        self._surrogate = surrogate
        self._ratios, self._added = np.array([e.ratio for e in rows]), np.array([e.added for e in rows])
        self._overheads = np.array([e.overhead for e in rows])

    def process_bytes(self, sets: Any) -> Any:
        """(sets,) predicted process memory, of (sets, members) places."""
        first, *further = (column for column in np.asarray(sets).T if column.max() >= 0)  # -1 changes nothing
        values = np.array(self._surrogate.base) * self._ratios[first]
        added, overheads = self._added[first], self._surrogate.overhead * self._overheads[first]
        for column in further:
            values *= self._ratios[column]
            added += self._added[column]
            overheads *= self._overheads[column]
        phases = np.add.reduceat(values, self._surrogate.starts, axis=1) + added
        return np.maximum(phases.max(axis=1), 0.0) + overheads
