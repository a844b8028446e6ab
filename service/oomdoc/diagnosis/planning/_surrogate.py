"""A cheap stand-in for the memory model while searching: the effect of several moves from their effects alone.

Terms mostly multiply (half the micro-batch, a quarter of the ranks' share), so a set of moves is taken to scale
each term of each phase by the product of the moves' own ratios; terms that a move brings in are added. Whatever the
search picks is priced by the real model before it is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oomkb.memory.estimate import Estimate

__all__ = ["Effect", "Surrogate"]

_LEVEL_TO_WANTED = 1.2816 / 1.6449
"""One-sided 90 % from the upper end of a two-sided 90 % interval, for a normal distribution of the logarithm."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What one move does to every term: a ratio, and bytes that were not there before."""

    ratio: tuple[float, ...]
    added: tuple[float, ...]
    overhead: float
    """Bytes that process memory holds beyond the largest phase, against the base."""


class Surrogate:
    """The base estimate as vectors, and effects on it."""

    def __init__(self, base: Estimate) -> None:
        self._names = [(phase, term) for phase, p in base.phases.items() for term in p.terms_bytes]
        self._slot = {name: i for i, name in enumerate(self._names)}
        self.base = tuple(base.phases[p].terms_bytes[t] for p, t in self._names)
        bounds, at = [], 0
        for phase in base.phases.values():
            bounds.append((at, at + len(phase.terms_bytes)))
            at += len(phase.terms_bytes)
        self._bounds = tuple(bounds)
        self._order = tuple(base.phases)
        self._overhead = base.process_bytes - max(p.total_bytes for p in base.phases.values())
        upper = base.intervals["process"].high_bytes / base.process_bytes if "process" in base.intervals else 1.15
        self.margin: float = max(1.0, upper) ** _LEVEL_TO_WANTED

    def effect(self, after: Estimate) -> Effect:
        """One move's effect, from its own real estimate."""
        ratio, added = [1.0] * len(self.base), [0.0] * len(self._bounds)
        for i, (phase, term) in enumerate(self._names):
            if phase not in after.phases:
                ratio[i] = 0.0
                continue
            value = after.phases[phase].terms_bytes.get(term, 0.0)
            if self.base[i] > 0:
                ratio[i] = value / self.base[i]
        for j, name in enumerate(self._order):
            if name in after.phases:
                terms = after.phases[name].terms_bytes
                added[j] = sum(
                    v for t, v in terms.items() if (name, t) not in self._slot or self.base[self._slot[name, t]] <= 0
                )
        overhead = after.process_bytes - max(p.total_bytes for p in after.phases.values()) - self._overhead
        return Effect(tuple(ratio), tuple(added), overhead)

    def start(self) -> Effect:
        """No move at all."""
        return Effect((1.0,) * len(self.base), (0.0,) * len(self._bounds), 0.0)

    @staticmethod
    def join(a: Effect, b: Effect) -> Effect:
        """Both effects."""
        ratio = tuple([x * y for x, y in zip(a.ratio, b.ratio, strict=True)])
        added = tuple([x + y for x, y in zip(a.added, b.added, strict=True)])
        return Effect(ratio, added, a.overhead + b.overhead)

    def process_bytes(self, effect: Effect) -> float:
        """Predicted process memory."""
        values = [b * r for b, r in zip(self.base, effect.ratio, strict=True)]
        top = max(sum(values[lo:hi]) + effect.added[j] for j, (lo, hi) in enumerate(self._bounds))
        return top + self._overhead + effect.overhead

    def best_possible(self, effects: Sequence[Effect]) -> Effect:
        """A bound: every term at its smallest under any of the effects alone."""
        ratio = tuple(min((e.ratio[i] for e in effects), default=1.0) for i in range(len(self.base)))
        return Effect(ratio, (0.0,) * len(self._bounds), min((e.overhead for e in effects), default=0.0))
