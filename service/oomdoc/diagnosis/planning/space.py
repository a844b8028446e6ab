"""What a search moves in: the moves with their prices and effects, and which of them get on with each other.

A cheap stand-in for the memory model while searching: the effect of several moves from their effects alone. Terms
mostly multiply (half the micro-batch, a quarter of the ranks' share), so a set of moves is taken to scale each term
of each phase by the product of the moves' own ratios; terms that a move brings in are added. Whatever the search
picks is priced by the real model before it is believed. What each move that may still join a set would leave takes a
few array operations for all of them together.
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


class Order:
    """Moves in the order in which they may join, with the lowest that those from each place on could bring."""

    def __init__(self, surrogate: Surrogate, places: Sequence[int], candidates: Sequence[Priced]) -> None:
        self.places = tuple(places)
        terms, phases = len(surrogate.base), len(surrogate.starts)
        chosen = [candidates[i].effect for i in places]
        ratios = np.array([(*e.ratio, e.overhead) for e in chosen]).reshape(len(chosen), terms + 1)
        self.ratios, self.overheads = ratios[:, :-1], ratios[:, -1]
        self.added = np.array([e.added for e in chosen]).reshape(len(chosen), phases)
        self.starts = np.array(surrogate.starts)
        self.overhead = surrogate.overhead
        floors = _floors(np.minimum(ratios, 1.0), [candidates[i].move.all_parts[0][0].name for i in places])
        self.floors, self.least_overheads = floors[:, :-1], floors[:, -1]


def _floors(lowest: Any, names: Sequence[str]) -> Any:
    """For each move the product of what all behind it could bring; of a remedy's variants one at most joins."""
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    rows, columns = range(len(names)), [number[name] for name in names]
    behind = np.ones((len(names) + 1, len(number), lowest.shape[1]))
    behind[rows, columns] = lowest
    behind = np.minimum.accumulate(behind[::-1], axis=0)[::-1][1:]
    behind[rows, columns] = 1.0
    return behind.prod(axis=1)


@dataclass(slots=True)
class State:
    """A partial set: which candidates, what they leave of each term, the pain so far, the room, what may join."""

    chosen: tuple[int, ...]
    values: Any
    """Bytes of each term of each phase."""
    added: Any
    overhead: float
    pain: float
    room_bytes: float
    order: Order
    children: tuple[Any, Any] | None = field(default=None)

    @classmethod
    def of(
        cls, surrogate: Surrogate, effect: Effect, chosen: tuple[int, ...], pain: float, room: float, order: Order
    ) -> State:
        """The set with this joint effect."""
        values = np.array(surrogate.base) * np.array(effect.ratio)
        return cls(chosen, values, np.array(effect.added), effect.overhead, pain, room, order)

    def process_bytes(self) -> float:
        """Predicted process memory."""
        top = float(np.maximum.reduce(np.add.reduceat(self.values, self.order.starts) + self.added))
        return max(0.0, top) + self.order.overhead * self.overhead

    def with_each(self) -> tuple[Any, Any]:
        """Process memory with each move of the order beside those chosen, and the least that could follow from it."""
        if self.children is None:
            order = self.order
            values = self.values * order.ratios
            added = self.added + order.added
            overheads = order.overhead * self.overhead * order.overheads
            need = np.maximum.reduce(np.add.reduceat(values, order.starts, axis=1) + added, axis=1)
            least = np.maximum.reduce(np.add.reduceat(values * order.floors, order.starts, axis=1) + added, axis=1)
            self.children = (
                (np.maximum(need, 0.0) + overheads).tolist(),
                (np.maximum(least, 0.0) + overheads * order.least_overheads).tolist(),
            )
        return self.children

    def joined(self, place: int, pain: float) -> State:
        """The set with the move at a place of the order."""
        order = self.order
        return State(
            (*self.chosen, order.places[place]),
            self.values * order.ratios[place],
            self.added + order.added[place],
            self.overhead * float(order.overheads[place]),
            pain,
            self.room_bytes,
            order,
        )
