"""The least painful set of moves that fits: best first on the stand-in, the real model for what it finds.

Deterministic: moves have a fixed order, ties are broken by name.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import combinations, islice
from typing import Any, Final

import numpy as np

from oomdoc.diagnosis.fixes._remedy import is_serving
from oomdoc.diagnosis.planning.moves import Goal, Move, combined, of_moves, of_speed
from oomdoc.diagnosis.planning.prices import Price
from oomdoc.diagnosis.planning.space import Order, Priced, Space, State
from oomkb.dataclass import dataclass


def cheapest_sets(
    costs: Sequence[float], sizes: Sequence[int], agree: Callable[[int, int], bool]
) -> Iterator[tuple[int, ...]]:
    """The sets of these sizes whose members agree pairwise, the cheapest first; members are places in ``costs``.

    Those of one cost come in the order of their members. A hundred alternatives have 180,000 sets of three.

    :param agree: asked once for each pair, and only for those in sets that are looked at.
    """
    members, totals = _all_sets(np.asarray(costs, dtype=float), sizes)
    known: dict[tuple[int, int], bool] = {}

    def agreed(pair: tuple[int, int]) -> bool:
        if pair not in known:
            known[pair] = agree(*pair)
        return known[pair]

    for row in _cheapest_first(members, totals):
        chosen = tuple(place for place in members[row].tolist() if place >= 0)
        if all(map(agreed, combinations(chosen, 2))):
            yield chosen


def _all_sets(costs: Any, sizes: Sequence[int]) -> tuple[Any, Any]:
    """(sets, members) places in ascending order, the missing ones of smaller sets -1 at the end, and (sets,) costs."""
    padded, most = np.append(costs, 0.0), max(sizes)
    parts = []
    for size in sizes:
        chosen = _combinations(len(costs), size)
        parts.append(np.pad(chosen, ((0, 0), (0, most - size)), constant_values=-1))
    members = np.concatenate(parts)
    totals = np.zeros(len(members))
    for column in members.T:
        totals += padded[column]
    return members, totals


def _combinations(count: int, size: int) -> Any:
    """(sets, size) as :func:`itertools.combinations` has them, row by row."""
    places = np.arange(count)
    if size == 1:
        return places[:, None]
    smaller = _combinations(count, size - 1)
    # Those whose members all come behind a place are the last ones.
    parts = [smaller[start:] for start in np.searchsorted(smaller[:, 0], places, side="right")]
    return np.column_stack([np.repeat(places, [len(part) for part in parts]), np.concatenate([smaller[:0], *parts])])


_AT_ONCE: Final = 512
"""Sets that are put in order first; few searches ask for more, and each time eight times as many follow."""


def _cheapest_first(members: Any, totals: Any) -> Iterator[int]:
    """The rows of the sets, the cheapest first, of one cost in the order of their members."""
    below, wanted = -math.inf, _AT_ONCE
    while wanted < len(totals):
        bound = np.partition(totals, wanted)[wanted]  # all of one cost come together
        rows = np.flatnonzero((totals > below) & (totals <= bound))
        yield from rows[np.lexsort((*members[rows].T[::-1], totals[rows]))]
        below, wanted = bound, wanted * 8
    rows = np.flatnonzero(totals > below)
    yield from rows[np.lexsort((*members[rows].T[::-1], totals[rows]))]


_DEPTH: Final = 5
_NODES: Final = 2000
_KEEP: Final = 20
"""Sets that the stand-in likes and the real model is asked about."""
_SURROGATE_MARGIN: Final = 1.03
"""How far above the limit the stand-in may put a set that is still worth asking about."""
_WORSE: Final = 1.0
"""How much more painful than the best a set may seem that is still asked about: together, moves may cost less."""
_WHOLE: Final = -1
"""Place of a set that nothing needs to join."""
_STEPS: Final = 12
"""Moves of the longest plan that is put together one by one."""
_TRIED: Final = 5
_ASKED: Final = 300
_MARGINS: Final = (1.0, 1.06, 1.15)
"""Where the real model refuses all that the stand-in liked, it is made to ask for more room, and searched again."""


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
        self._efforts = [of_moves([single.move], goal) for _, single in pains]
        self._margin = space.surrogate.margin
        self._liked = 0
        self._most_pain = math.inf
        self._waiting: list[tuple[float, tuple[int, ...], int, State]] = []
        self._nodes = 0

    def run(self) -> Found | None:
        """The least painful set that fits, or ``None``."""
        if is_serving(self.space.prices.job):
            return self._exhaust()
        alone = self._alone()
        for extra in _MARGINS:
            self._margin = self.space.surrogate.margin * extra
            best = self._verify(self._explore(), alone)
            if best is not None:
                return self._relaxed(self._trimmed(best))
            if not self._liked:
                break
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
        moves = [candidate.move for candidate in self.candidates]
        sets = cheapest_sets(self._pains, (1, 2, 3), lambda a, b: self.space.compatible(moves[a], moves[b]))
        wanted = (s for s in sets if any(moves[i].remedy.hardware for i in s) == self.goal.hardware)
        for chosen in islice(wanted, _ASKED):
            found = self.price(tuple(moves[i] for i in chosen))
            if found is not None and found.fits:
                return found
        return None

    def _explore(self) -> Iterator[tuple[int, ...]]:
        """Sets that the stand-in takes to fit, the least painful first.

        Best first: a set not yet small enough waits with the pain of the mildest move that could still join it, so
        nothing is looked at that is more painful than the last set asked for, or than is worth asking about.
        """
        self._waiting, self._nodes = [], 0
        for start in self._starts():
            self._wait(start, 0)
        while self._waiting and self._nodes < _NODES and self._waiting[0][0] <= self._most_pain:
            pain, chosen, place, state = heapq.heappop(self._waiting)
            if place == _WHOLE:
                yield chosen
            else:
                self._step(pain, chosen, place, state)

    @cached_property
    def _order(self) -> Order:
        """The moves that keep the hardware."""
        here = [i for i, candidate in enumerate(self.candidates) if not candidate.move.remedy.hardware]
        return Order(self.space.surrogate, here, self.candidates)

    def _starts(self) -> Iterator[State]:
        """The empty set; for more hardware one set for every other card or number of cards."""
        order, surrogate = self._order, self.space.surrogate
        if not self.goal.hardware:
            yield State.of(surrogate, surrogate.start(), (), 0.0, self.room_bytes, order)
            return
        for i, single in enumerate(self.candidates):
            if single.move.remedy.hardware:
                capacity = single.price.estimate.capacity_bytes
                # Another card brings its own capacity.
                room = capacity / self.space.prices.scale if capacity is not None else self.room_bytes
                state = State.of(surrogate, single.effect, (i,), self._pains[i], room, order)
                if not self._offer(state.chosen, state.process_bytes(), state):
                    yield state

    def _wait(self, state: State, place: int) -> None:
        """Put a set that is not small enough back, until the move at ``place`` of those that could join it is due."""
        if place < len(state.order.places):
            new = state.order.places[place]
            heapq.heappush(self._waiting, (state.pain + self._pains[new], (*state.chosen, new), place, state))

    def _step(self, pain: float, chosen: tuple[int, ...], place: int, state: State) -> None:
        """Try the move at ``place`` beside those of a set: ``chosen`` is both."""
        self._nodes += 1
        self._wait(state, place + 1)
        if sum(self._efforts[i] for i in chosen) >= self._most_pain - _WORSE:
            return  # more than the best, however fast it is
        needs, leasts = state.with_each()
        # Not even all that is left would bring it down; whether two moves get on with each other costs more to ask.
        if leasts[place] * self._margin > state.room_bytes * _SURROGATE_MARGIN:
            return
        enough = self._offer(chosen, needs[place], state, pain)
        if not enough and len(chosen) < _DEPTH and self._joins(chosen[-1], state.chosen):
            self._wait(state.joined(place, pain), place + 1)

    def _offer(self, chosen: tuple[int, ...], bytes_: float, state: State, pain: float | None = None) -> bool:
        """Keep a set that is small enough by the stand-in, or nearly; whether it is, so that nothing more joins it."""
        need = bytes_ * self._margin
        if need <= state.room_bytes * _SURROGATE_MARGIN and self._joins(chosen[-1], chosen[:-1]):
            # A set that is just short by the stand-in is asked about after those that are not.
            own = state.pain if pain is None else pain
            heapq.heappush(self._waiting, (own + (0.0 if need <= state.room_bytes else 0.25), chosen, _WHOLE, state))
        return need <= state.room_bytes

    def _joins(self, new: int, chosen: tuple[int, ...]) -> bool:
        """Whether a candidate gets on with each of those chosen; fields contradict each other in pairs or never."""
        move = self.candidates[new].move
        return all(self.space.compatible(self.candidates[i].move, move) for i in chosen)

    def _verify(self, sets: Iterator[tuple[int, ...]], best: Found | None) -> Found | None:
        """The least painful of some sets and ``best`` under the real model."""
        self._liked = 0
        self._most_pain = math.inf if best is None else best.pain + _WORSE
        for chosen in islice(sets, _KEEP):
            self._liked += 1
            found = self.price(tuple(self.candidates[i].move for i in chosen))
            if found is not None and found.fits and (best is None or found.pain < best.pain):
                best = found
                self._most_pain = best.pain + _WORSE
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
        order, surrogate = self._order, self.space.surrogate
        so_far = State.of(surrogate, surrogate.start(), (), 0.0, self.room_bytes, order)
        best = self.price(())
        for _ in range(_STEPS):
            if best is None or (enough and best.fits):
                break
            before, needs = so_far.process_bytes(), so_far.with_each()[0]
            ranked = sorted(
                (rank(before, need, self._pains[i]), self.candidates[i].move.key, place)
                for place, (i, need) in enumerate(zip(order.places, needs, strict=True))
            )
            better = self._next(best, [place for _, _, place in ranked], first=enough)
            if better is None:
                break
            best, added = better
            so_far = so_far.joined(added, 0.0)
        return best

    def _next(self, best: Found, ranked: Sequence[int], *, first: bool) -> tuple[Found, int] | None:
        """The first (or lowest) of the leading moves that really lowers the peak of ``best``, and its place."""
        tried = 0
        lowest: tuple[Found, int] | None = None
        for place in ranked:
            move = self.candidates[self._order.places[place]].move
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
