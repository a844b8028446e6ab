"""What a plan costs a person: effort, what happens to the training, and time, in one number.

One unit is about the annoyance of a change to a config file. Halving the speed costs four; rounding differently one and
a half; training something else four, and more the further it strays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from oomdoc.diagnosis.fixes import Remedy, Variant
from oomdoc.diagnosis.fixes._remedy import Safety
from oomdoc.diagnosis.planning.moves import LAYOUT, Move
from oomkb.dataclass import dataclass

_SAFETY_COST: Final = {"same-numbers": 0.0, "changed-numerics": 1.5, "changed-training": 4.0}
CLASSES: Final = ("same-numbers", "changed-numerics", "changed-training")


@dataclass(frozen=True, slots=True)
class Goal:
    """A kind of plan: what it may touch and what it minds."""

    name: str
    allowed: frozenset[str]
    speed_weight: float
    safety_weight: float
    hardware: bool = False
    layout: bool = True
    """Whether it may change how the job is spread over the GPUs."""
    only: frozenset[str] = frozenset()
    """The remedies it may use; empty: all."""
    without: frozenset[str] = frozenset()
    """The remedies it may not use."""
    dear: tuple[str, float] = ("", 1.0)
    """The remedy whose effort it minds so many times as much: what a server's users would rather keep."""

    def allows(self, move: Move) -> bool:
        """Whether such a plan may hold this move."""
        if (self.only and not move.names <= self.only) or self.without & move.names:
            return False
        if not self.layout and LAYOUT & set(move.fields):
            return False
        classes = {_safety(r, v) for r, v in move.all_parts}
        return classes <= self.allowed and move.remedy.hardware <= self.hardware

    def within(self, wider: Goal) -> bool:
        """Whether the other kind minds the same and may use whatever this one may."""
        same = (self.speed_weight, self.safety_weight, self.hardware, self.dear)
        return (
            same == (wider.speed_weight, wider.safety_weight, wider.hardware, wider.dear)
            and self.allowed <= wider.allowed
            and self.layout <= wider.layout
            and (not wider.only or (bool(self.only) and self.only <= wider.only))
            and wider.without <= self.without
        )


_BATCH: Final = frozenset({"micro-batch"})
_SHARDING: Final = frozenset({"zero", "fsdp", "hsdp", "distributed-optimizer"})
_ALL: Final = frozenset(CLASSES)
GOALS: Final = (
    Goal("keep-numerics", frozenset({"same-numbers"}), 4.0, 1.0),
    Goal("keep-batch", frozenset({"same-numbers"}), 4.0, 1.0, without=_BATCH),
    Goal("smaller-batch", frozenset({"same-numbers"}), 4.0, 1.0, only=_BATCH),
    Goal("sharded", frozenset({"same-numbers"}), 4.0, 1.0, only=_SHARDING),
    Goal("keep-layout", frozenset({"same-numbers"}), 4.0, 1.0, layout=False),
    Goal("keep-hardware", _ALL, 4.0, 1.0),
    Goal("keep-context", _ALL, 4.0, 0.5, dear=("serving-length", 4.5)),
    Goal("keep-speed", _ALL, 16.0, 0.6),
    Goal("more-hardware", frozenset({"same-numbers"}), 2.0, 1.0, hardware=True),
)


def _safety(remedy: Remedy, variant: Variant) -> Safety:
    return variant.safety or remedy.safety


def strongest(classes: Iterable[Safety]) -> Safety:
    """The class that changes most."""
    return max(classes, key=CLASSES.index, default="same-numbers")


def safety_of(moves: Iterable[Move]) -> Safety:
    """The strongest class among them."""
    return strongest(_safety(r, v) for move in moves for r, v in move.all_parts)


def of_moves(moves: Iterable[Move], goal: Goal) -> float:
    """Effort and safety, without speed."""
    total = 0.0
    for move in moves:
        for remedy, variant in move.all_parts:
            times = goal.dear[1] if remedy.name == goal.dear[0] else 1.0
            total += times * variant.effort + goal.safety_weight * _SAFETY_COST[_safety(remedy, variant)]
    return total


def of_speed(speed: float, goal: Goal) -> float:
    """Slowness: nothing where it is as fast as before or faster."""
    return goal.speed_weight * max(0.0, -math.log2(max(speed, 1e-3)))
