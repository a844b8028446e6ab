"""The stand-in for many sets at once: what each move that may still join a set would leave, in a few array operations.

The same arithmetic as :class:`~oomdoc.diagnosis.planning.surrogate.Surrogate`, over all moves of an order together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from oomdoc.diagnosis.planning.surrogate import Effect, Surrogate
from oomkb.dataclass import dataclass


class Order:
    """Moves in the order in which they may join, with the lowest that all from each place on could bring."""

    def __init__(self, surrogate: Surrogate, places: Sequence[int], effects: Sequence[Effect]) -> None:
        self.places = tuple(places)
        terms, phases = len(surrogate.base), len(surrogate.starts)
        chosen = [effects[i] for i in places]
        self.ratios = np.array([e.ratio for e in chosen]).reshape(len(chosen), terms)
        self.added = np.array([e.added for e in chosen]).reshape(len(chosen), phases)
        self.overheads = np.array([e.overhead for e in chosen])
        self.starts = np.array(surrogate.starts)
        self.overhead = surrogate.overhead
        lowest = np.minimum(self.ratios, 1.0)[::-1]
        self.floors = np.vstack([np.cumprod(lowest, axis=0)[::-1], np.ones((1, terms))])[1:] if chosen else lowest
        least = np.cumprod(np.minimum(self.overheads, 1.0)[::-1])[::-1]
        self.least_overheads = np.append(least, 1.0)[1:]


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
