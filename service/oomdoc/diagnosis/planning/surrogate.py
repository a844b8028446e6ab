"""A cheap stand-in for the memory model while searching: the effect of several moves from their effects alone.

Terms mostly multiply (half the micro-batch, a quarter of the ranks' share), so a set of moves is taken to scale
each term of each phase by the product of the moves' own ratios; terms that a move brings in are added. Whatever the
search picks is priced by the real model before it is believed.
"""

from __future__ import annotations

from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.estimate import Estimate

_LEVEL_TO_WANTED = 1.2816 / 1.6449
"""One-sided 90 % from the upper end of a two-sided 90 % interval, for a normal distribution of the logarithm."""


_SMALL: Final = 0.01
_REST: Final = ""


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
        # Small terms of a phase are carried as one; they hardly move.
        self._small = _SMALL * largest
        self._names: list[tuple[str, str]] = []
        self.starts: list[int] = []
        """Where each phase's terms begin."""
        values: list[float] = []
        for name, phase in base.phases.items():
            self.starts.append(len(values))
            large = {t: v for t, v in phase.terms_bytes.items() if v >= self._small}
            self._names += [(name, t) for t in large] + [(name, _REST)]
            values += [*large.values(), phase.total_bytes - sum(large.values())]
        self._slot = {name: i for i, name in enumerate(self._names)}
        self.base = tuple(values)
        self._order = tuple(base.phases)
        self.overhead = max(1.0, base.process_bytes - largest)
        upper = base.intervals["process"].high_bytes / base.process_bytes if "process" in base.intervals else 1.15
        self.margin: float = max(1.0, upper) ** _LEVEL_TO_WANTED

    def effect(self, after: Estimate) -> Effect:
        """One move's effect, from its own real estimate."""
        ratio, added = [1.0] * len(self.base), [0.0] * len(self.starts)
        for i, (phase, term) in enumerate(self._names):
            if phase not in after.phases:
                ratio[i] = 0.0
                continue
            value = after.phases[phase].terms_bytes.get(term, 0.0)
            if term != _REST and self.base[i] > 0:
                ratio[i] = value / self.base[i]
        for j, name in enumerate(self._order):
            if name in after.phases:
                terms = after.phases[name].terms_bytes
                rest = sum(v for t, v in terms.items() if (name, t) not in self._slot)
                slot = self._slot[name, _REST]
                ratio[slot] = min(1.0, rest / self.base[slot]) if self.base[slot] > 0 else 1.0
                added[j] = max(0.0, rest - self.base[slot])
        overhead = after.process_bytes - max(p.total_bytes for p in after.phases.values())
        return Effect(tuple(ratio), tuple(added), max(0.0, overhead) / self.overhead)

    def start(self) -> Effect:
        """No move at all."""
        return Effect((1.0,) * len(self.base), (0.0,) * len(self.starts), 1.0)
