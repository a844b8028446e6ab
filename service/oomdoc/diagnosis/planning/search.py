"""The least painful set of moves that fits: the cheapest sets first, the real model for those that a stand-in likes.

Deterministic: moves have a fixed order, ties are broken by name.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from oomdoc.diagnosis.fixes._remedy import is_serving
from oomdoc.diagnosis.planning.moves import Goal, Move, combined, of_moves, of_speed
from oomdoc.diagnosis.planning.prices import Price
from oomdoc.diagnosis.planning.sets import agreeing, by_cost, cheapest_sets, few_sets, pairs
from oomdoc.diagnosis.planning.space import Priced, Space, Stacked
from oomkb.dataclass import dataclass

_DEPTH: Final = 5
_MOST_SETS: Final = 60_000
"""Sets of one size that are put in order; of more, none of that size is looked at."""
_KEEP: Final = 20
"""Sets that the stand-in likes and the real model is asked about."""
_SURROGATE_MARGIN: Final = 1.03
"""How far above the limit the stand-in may put a set that is still worth asking about."""
_WORSE: Final = 1.0
"""How much more painful than the best a set may seem that is still asked about: together, moves may cost less."""
_FEW: Final = 12
"""Moves whose sets are put together one by one."""
_ROUNDING: Final = 1e-6
"""By how much a set's pain may differ with the order in which it is added up, and more."""
_STEPS: Final = 12
"""Moves of the longest plan that is put together one by one."""
_TRIED: Final = 5
_ASKED: Final = 300


@dataclass(frozen=True, slots=True)
class Found:
    """A set of moves and its price."""

    moves: tuple[Move, ...]
    price: Price
    pain: float
    fits: bool


class Search:
    """One search for one goal."""

    def __init__(self, space: Space, goal: Goal) -> None:
        self.space, self.goal = space, goal
        self.room_bytes = space.prices.room_bytes
        allowed = [s for s in space.singles if goal.allows(s.move)]
        pains = sorted(_undominated(allowed, goal, space.prices.base), key=lambda pair: (pair[0], pair[1].move.key))
        self._pains = [pain for pain, _ in pains]
        self.candidates = [single for _, single in pains]
        self._stacked = Stacked(space.surrogate, [single.effect for _, single in pains])
        self._hardware = np.array([single.move.remedy.hardware for _, single in pains] + [False])
        self._rooms = np.array([self._room_with(single) for _, single in pains] + [self.room_bytes])

    def _room_with(self, single: Priced) -> float:
        """Room beside a move, in the estimate's bytes: another card brings its own capacity."""
        capacity = single.price.estimate.capacity_bytes if single.move.remedy.hardware else None
        return self.room_bytes if capacity is None else capacity / self.space.prices.scale

    def run(self) -> Found | None:
        """The least painful set that fits, or ``None``."""
        if is_serving(self.space.prices.job):
            return self._exhaust()
        best = self._verify()
        if best is not None:
            return self._relaxed(self._trimmed(best))
        if self.goal.hardware:
            return None
        # Too many moves are needed for the search: one after the other, then milder wherever that still does.
        for rank in (_by_gain, _by_peak):
            found = self._greedily(rank, enough=True)
            if found is not None and found.fits and found.moves:
                return self._relaxed(self._trimmed(found))
        return None

    def _alone(self) -> Found | None:
        """The least painful single move that fits under the real model: each is priced already."""
        for pain, candidate in zip(self._pains, self.candidates, strict=True):
            move, price = candidate.move, candidate.price
            if move.remedy.hardware == self.goal.hardware and self.space.enough(price):
                return Found((move,), price, pain, fits=True)
        return None

    def _exhaust(self) -> Found | None:
        """All sets of up to three by pain, each under the real model: servers have few settings and answer in steps."""
        sets = cheapest_sets(self._pains, (1, 2, 3), self._agree, self._are_of_goal)
        for chosen in islice(sets, _ASKED):
            found = self.price(self._moves(chosen))
            if found is not None and found.fits:
                return found
        return None

    def _moves(self, chosen: tuple[int, ...]) -> tuple[Move, ...]:
        return tuple(self.candidates[place].move for place in chosen)

    def _agree(self, one: int, other: int) -> bool:
        return self.space.compatible(self.candidates[one].move, self.candidates[other].move)

    def _are_of_goal(self, sets: Any) -> Any:
        """Which of the sets have one move of hardware where the goal is more of it, and else none."""
        return self._hardware[sets].sum(axis=1) == self.goal.hardware

    def _apart(self, count: int) -> Any:
        """(count + 1, count + 1) whether two of the first candidates share no remedy; the last one is no move at all.

        Most sets hold two variants of one remedy: these need no price to be ruled out.
        """
        names = [*(single.move.names for single in self.candidates[:count]), frozenset[str]()]
        return np.array([[one.isdisjoint(other) for other in names] for one in names])

    def _explore(self, most: float) -> Iterator[tuple[int, ...]]:
        """Sets that the stand-in takes to fit, or nearly, the least painful first; in a set other hardware comes first.

        Nothing joins a set that is small enough; what comes before its members may stand before them.

        :param most: the pain above which no set is asked for.
        """

        def filled(sets: Any) -> Any:
            """(sets,) shares of the room."""
            room = self._rooms[sets].max(axis=1) if self.goal.hardware else self.room_bytes
            return self.space.surrogate.margin * self._stacked.process_bytes(sets) / room

        def likely(sets: Any) -> Any:
            chosen = np.ones(len(sets), dtype=bool)
            if not few:
                ones, others = pairs(sets.shape[1])
                chosen &= apart[sets[:, ones], sets[:, others]].all(axis=1)
            if self.goal.hardware:  # for other goals no candidate is other hardware
                chosen &= self._are_of_goal(sets)
            chosen[chosen] = filled(sets[chosen]) <= _SURROGATE_MARGIN if chosen.any() else False
            return chosen

        within = bisect_right(self._pains, most)  # a dearer one is in no set that is asked for
        if not within:
            return
        count = len(self.candidates)
        sizes = [size for size in range(1, _DEPTH + 1) if math.comb(count, size) <= _MOST_SETS]
        apart, few = self._apart(within), within <= _FEW
        enough: set[tuple[int, ...]] = set()
        pains = self._pains[:within]
        sets = [few_sets(pains, max(sizes), apart.tolist(), most)] if few else by_cost(pains, sizes, most)
        for found in agreeing(sets, self._agree, likely):
            chosen = tuple(sorted(found, key=lambda place: not self._hardware[place]))
            if enough.isdisjoint(chosen[:size] for size in range(len(chosen))):
                if filled(np.array([chosen])) <= 1.0:
                    enough.add(chosen)
                yield chosen

    def _verify(self) -> Found | None:
        """The least painful of some sets and of single moves under the real model."""
        best = self._alone()
        most = math.inf if best is None else best.pain + _WORSE + _ROUNDING
        for chosen in islice(self._explore(most), _KEEP):
            if best is not None and sum(self._pains[place] for place in chosen) > best.pain + _WORSE:
                break
            found = self.price(self._moves(chosen))
            if found is not None and found.fits and (best is None or found.pain < best.pain):
                best = found
        return best

    def price(self, moves: tuple[Move, ...]) -> Found | None:
        """A set of moves under the real model."""
        fields = combined(moves)
        price = self.space.prices.of(fields) if fields is not None else None
        if price is None or not self.space.context.host_holds(price.estimate.host_bytes):
            return None
        pain = of_moves(moves, self.goal) + of_speed(price.speed, self.goal)
        return Found(moves, price, pain, self.space.enough(price))

    def _trimmed(self, found: Found) -> Found:
        """Without moves that turn out not to be needed."""
        for move in sorted(found.moves, key=lambda m: (-of_moves([m], self.goal), m.key)):
            rest = tuple(m for m in found.moves if m is not move)
            if not rest or (self.goal.hardware and move.remedy.hardware):
                continue
            less = self.price(rest)
            if less is not None and less.fits and less.pain <= found.pain:
                found = less
        return found

    def most(self) -> Found | None:
        """Everything that helps, whatever the pain: how low this hardware can go."""
        return self._greedily(_by_peak, enough=False)

    def _greedily(self, rank: Callable[[float, float, float], float], *, enough: bool) -> Found | None:
        """One move after the other, best by ``rank(before, after, pain)``; stops once it fits if that is ``enough``."""
        here = [place for place in range(len(self.candidates)) if not self._hardware[place]]
        chosen: list[int] = []
        best = self.price(())
        while best is not None and here and len(chosen) < _STEPS and not (enough and best.fits):
            before, *needs = self._stacked.process_bytes([[*chosen, place] for place in (-1, *here)]).tolist()
            ranked = sorted(
                (rank(before, need, self._pains[place]), self.candidates[place].move.key, place)
                for place, need in zip(here, needs, strict=True)
            )
            better = self._next(best, [place for _, _, place in ranked], first=enough)
            if better is None:
                break
            best, added = better
            chosen.append(added)
        return best

    def _next(self, best: Found, ranked: Sequence[int], *, first: bool) -> tuple[Found, int] | None:
        """The first (or lowest) of the leading moves that really lowers the peak of ``best``, and its place."""
        tried = 0
        lowest: tuple[Found, int] | None = None
        for place in ranked:
            move = self.candidates[place].move
            if tried >= _TRIED or (first and lowest is not None):
                break
            if not all(self.space.compatible(move, other) for other in best.moves):
                continue
            tried += 1
            found = self.price((*best.moves, move))
            if found is not None and _peak(found) < 0.995 * _peak(lowest[0] if lowest else best):
                lowest = (found, place)
        return lowest

    def _relaxed(self, found: Found) -> Found:
        """With a milder variant of a remedy wherever that still fits."""
        for move in found.moves:
            names = {r.name for r, _ in move.all_parts}
            others = tuple(m for m in found.moves if m is not move)
            for single in self.candidates:
                same = {r.name for r, _ in single.move.all_parts} == names and single.move is not move
                if not same or not all(self.space.compatible(single.move, other) for other in others):
                    continue
                milder = self.price((*others, single.move))
                if milder is not None and milder.fits and milder.pain < found.pain:
                    found = milder
                    break
        return found


def _by_peak(before: float, after: float, pain: float) -> float:
    return after


def _by_gain(before: float, after: float, pain: float) -> float:
    """Least pain for halving the peak first; what does not lower it comes last."""
    gained = math.log2(before / after) if after > 0 else 60.0
    return (pain + 0.2) / gained if gained > 1e-3 else 1e9 - after / before


def _peak(found: Found) -> float:
    return found.price.estimate.process_bytes


def _needed(price: Price) -> float:
    """What an engine cannot do without; its process takes the share that it is given, whatever it serves."""
    return price.estimate.needed_bytes or 0.0


def _undominated(singles: Sequence[Priced], goal: Goal, base: Price) -> list[tuple[float, Priced]]:
    """The moves with their pain, less those that do nothing and variants that another of the remedy beats in all."""
    useful = [
        s
        for s in singles
        if s.move.remedy.hardware
        or min(s.effect.ratio) < 0.999
        or s.effect.overhead < 0.99
        or s.price.probability > base.probability + 0.01
        or _needed(s.price) < 0.999 * _needed(base)
    ]
    pains = [of_moves([s.move], goal) + of_speed(s.price.speed, goal) for s in useful]
    variants: dict[tuple[str, str], list[int]] = {}
    for i, single in enumerate(useful):
        if not single.move.remedy.hardware:
            variants.setdefault((single.move.remedy.name, single.move.needs), []).append(i)
    beaten = {
        i
        for places in variants.values()
        for i in places
        if any(i != j and pains[j] <= pains[i] and _beats(useful[j], useful[i]) for j in places)
    }
    return [(pains[i], single) for i, single in enumerate(useful) if i not in beaten]


def _beats(a: Priced, b: Priced) -> bool:
    if a.price.probability < b.price.probability or _needed(a.price) > _needed(b.price):
        return False
    if (a.effect.ratio, a.effect.added) == (b.effect.ratio, b.effect.added):
        return a.move.key < b.move.key or a.price.probability > b.price.probability
    lower = all(x <= y for x, y in zip(a.effect.ratio, b.effect.ratio, strict=True))
    return lower and all(x <= y for x, y in zip(a.effect.added, b.effect.added, strict=True))
