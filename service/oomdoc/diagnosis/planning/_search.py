"""The least painful set of moves that fits: branch and bound on the stand-in, the real model for what it finds.

Deterministic: moves have a fixed order, ties are broken by name.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.planning._moves import LAYOUT, Move, combined, derive, merge, variants_on
from oomdoc.diagnosis.planning._pain import Goal, of_moves, of_speed
from oomdoc.diagnosis.planning._prices import Price, Prices
from oomdoc.diagnosis.planning._surrogate import Effect, Surrogate

__all__ = ["Found", "Priced", "Search", "Space"]

_DEPTH: Final = 5
_NODES: Final = 4000
_KEEP: Final = 20
"""Sets that the stand-in likes and the real model is asked about."""
_NEAR: Final = 1.03
"""How far above the limit the stand-in may put a set that is still worth asking about."""
_MARGINS: Final = (1.0, 1.06, 1.15)
"""Where the real model refuses all that the stand-in liked, it is made to ask for more room, and searched again."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A move with its own price and effect."""

    move: Move
    price: Price
    effect: Effect


@dataclass(frozen=True, slots=True)
class Found:
    """A set of moves and its price."""

    moves: tuple[Move, ...]
    price: Price
    pain: float
    fits: bool


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched: the prices, the moves with their effects, and what each pair of moves thinks of the other."""

    prices: Prices
    surrogate: Surrogate
    singles: Sequence[Priced]
    context: Context
    wanted: float
    pairs: dict[tuple[str, str], bool] = field(default_factory=dict)

    def compatible(self, a: Move, b: Move) -> bool:
        """Whether either is still offered once the other is done."""
        key = (a.key, b.key) if a.key < b.key else (b.key, a.key)
        if key not in self.pairs:
            self.pairs[key] = self._follows(a, b) and self._follows(b, a)
        return self.pairs[key]

    def _follows(self, first: Move, then: Move) -> bool:
        if {r.name for r, _ in first.all_parts} & {r.name for r, _ in then.all_parts}:
            return False
        job = self.prices.job_with(first.fields)
        wanted = merge(first.fields, then.fields)
        if job is None or wanted is None:
            return False
        for remedy, variant in then.all_parts:
            if not any(
                merge(wanted, option.fields) == wanted and set(option.fields) >= set(variant.fields)
                for option in variants_on(remedy, job, self.context)
            ):
                return False
            after = derive(job, variant.fields)
            if after is None:
                return False
            job = after
        return True


@dataclass(frozen=True, slots=True)
class _State:
    """A partial set: which candidates, their joint effect and fields, the pain so far, the room there is."""

    chosen: tuple[int, ...]
    effect: Effect
    fields: Mapping[str, Any]
    pain: float
    room_bytes: float


class Search:
    """One search for one goal."""

    def __init__(self, space: Space, goal: Goal) -> None:
        self.space, self.goal = space, goal
        self.room_bytes = space.prices.room_bytes
        allowed = [s for s in space.singles if self._allowed(s.move)]
        self.candidates = sorted(_undominated(allowed, goal), key=lambda c: (self._pain(c), c.move.key))
        self._pains = [self._pain(c) for c in self.candidates]
        self._margin = space.surrogate.margin
        self._heap: list[tuple[float, int, tuple[int, ...]]] = []
        self._nodes = 0

    def _allowed(self, move: Move) -> bool:
        classes = {v.safety or r.safety for r, v in move.all_parts}
        if not self.goal.layout and LAYOUT & set(move.fields):
            return False
        return classes <= self.goal.allowed and move.remedy.hardware <= self.goal.hardware

    def _pain(self, single: Priced) -> float:
        return of_moves([single.move], self.goal) + of_speed(single.price.speed, self.goal)

    def run(self) -> Found | None:
        """The least painful set that fits, or ``None``."""
        for extra in _MARGINS:
            self._margin = self.space.surrogate.margin * extra
            self._heap, self._nodes = [], 0
            self._explore()
            best = self._verify()
            if best is not None:
                return self._trimmed(best)
            if not self._heap:
                break
        return None

    def _explore(self) -> None:
        everything = range(len(self.candidates))
        if not self.goal.hardware:
            order = list(everything)
            self._descend(
                _State((), self.space.surrogate.start(), {}, 0.0, self.room_bytes), order, self._floors(order)
            )
            return
        order = [i for i in everything if not self.candidates[i].move.remedy.hardware]
        floors = self._floors(order)
        for i in everything:
            single = self.candidates[i]
            if single.move.remedy.hardware:
                capacity = single.price.estimate.capacity_bytes
                # Another card brings its own capacity.
                room = capacity / self.space.prices.scale if capacity is not None else self.room_bytes
                self._descend(_State((i,), single.effect, single.move.fields, self._pains[i], room), order, floors)

    def _floors(self, order: list[int]) -> list[Effect]:
        """For every position the lowest that all moves from there on could bring, if they simply multiplied."""
        floors = [self.space.surrogate.start()]
        for i in reversed(order):
            last, effect = floors[-1], self.candidates[i].effect
            ratio = tuple([x * min(1.0, y) for x, y in zip(last.ratio, effect.ratio, strict=True)])
            floors.append(Effect(ratio, last.added, last.overhead + min(0.0, effect.overhead)))
        return floors[::-1]

    def _descend(self, state: _State, order: list[int], floors: list[Effect], start: int = 0) -> None:
        self._nodes += 1
        surrogate = self.space.surrogate
        need = surrogate.process_bytes(state.effect) * self._margin
        if state.chosen and need <= state.room_bytes * _NEAR:
            # A set that is just short by the stand-in is asked about after those that are not.
            self._offer(state.pain + (0.0 if need <= state.room_bytes else 0.25), state.chosen)
        done = need <= state.room_bytes or len(state.chosen) >= _DEPTH
        if self._nodes > _NODES or (done and state.chosen):
            return
        for n in range(start, len(order)):
            i = order[n]
            pain = state.pain + self._pains[i]
            if len(self._heap) >= _KEEP and pain >= -self._heap[0][0]:
                break  # candidates come in order of pain
            lowest = surrogate.process_bytes(surrogate.join(state.effect, floors[n]))
            if lowest > state.room_bytes * _NEAR:
                break
            single = self.candidates[i]
            fields = merge(state.fields, single.move.fields)
            others = [self.candidates[j].move for j in state.chosen]
            if fields is None or not all(self.space.compatible(single.move, other) for other in others):
                continue
            effect = surrogate.join(state.effect, single.effect)
            self._descend(_State((*state.chosen, i), effect, fields, pain, state.room_bytes), order, floors, n + 1)

    def _offer(self, pain: float, chosen: tuple[int, ...]) -> None:
        heapq.heappush(self._heap, (-pain, -self._nodes, chosen))
        if len(self._heap) > _KEEP:
            heapq.heappop(self._heap)

    def _verify(self) -> Found | None:
        best: Found | None = None
        for negative, _, chosen in sorted(self._heap, key=lambda e: (-e[0], e[2])):
            if best is not None and -negative > best.pain + 1.0:
                break
            found = self.price(tuple(self.candidates[i].move for i in chosen))
            if found is not None and found.fits and (best is None or found.pain < best.pain):
                best = found
        return best

    def price(self, moves: tuple[Move, ...]) -> Found | None:
        """A set of moves under the real model."""
        fields = combined(moves)
        price = self.space.prices.of(fields) if fields is not None else None
        host = self.space.context.host_bytes
        if price is None or (host is not None and price.estimate.host_bytes > 0.9 * host):
            return None
        pain = of_moves(moves, self.goal) + of_speed(price.speed, self.goal)
        return Found(moves, price, pain, price.probability >= self.space.wanted)

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
        best = self.price(())
        surrogate, so_far = self.space.surrogate, self.space.surrogate.start()
        options = [c for c in self.candidates if not c.move.remedy.hardware]
        for _ in range(12):
            if best is None:
                return None
            joined = [(surrogate.process_bytes(surrogate.join(so_far, c.effect)), c.move.key, c) for c in options]
            better = self._lowest(best, [c for _, _, c in sorted(joined, key=lambda j: j[:2])])
            if better is None:
                return best
            best, added = better
            so_far = surrogate.join(so_far, added.effect)
        return best

    def _lowest(self, best: Found, ranked: Sequence[Priced]) -> tuple[Found, Priced] | None:
        tried = 0
        lowest: tuple[Found, Priced] | None = None
        for single in ranked:
            if tried >= 6:
                break
            if not all(self.space.compatible(single.move, other) for other in best.moves):
                continue
            tried += 1
            found = self.price((*best.moves, single.move))
            if found is not None and _peak(found) < 0.995 * _peak(lowest[0] if lowest else best):
                lowest = (found, single)
        return lowest


def _peak(found: Found) -> float:
    return found.price.estimate.process_bytes


def _undominated(singles: Sequence[Priced], goal: Goal) -> list[Priced]:
    """Without moves that do nothing, and variants that another variant of the same remedy beats in every way."""
    useful = [s for s in singles if s.move.remedy.hardware or min(s.effect.ratio) < 0.999 or s.effect.overhead < 0]
    pains = [of_moves([s.move], goal) + of_speed(s.price.speed, goal) for s in useful]
    out = []
    for i, single in enumerate(useful):
        if not any(
            i != j and _same_remedy(single, other) and pains[j] <= pains[i] and _beats(other, single)
            for j, other in enumerate(useful)
        ):
            out.append(single)
    return out


def _same_remedy(a: Priced, b: Priced) -> bool:
    return a.move.remedy.name == b.move.remedy.name and a.move.needs == b.move.needs and not a.move.remedy.hardware


def _beats(a: Priced, b: Priced) -> bool:
    if (a.effect.ratio, a.effect.added) == (b.effect.ratio, b.effect.added):
        return a.move.key < b.move.key
    lower = all(x <= y for x, y in zip(a.effect.ratio, b.effect.ratio, strict=True))
    return lower and all(x <= y for x, y in zip(a.effect.added, b.effect.added, strict=True))
