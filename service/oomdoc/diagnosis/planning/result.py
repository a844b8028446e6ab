"""What planning gives: plans, what each remedy does alone, the largest that fits, and what to do when nothing does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from oomdoc.diagnosis.result import Change, Plan, Safety, SingleFix
from oomdoc.messages import Message
from oomkb.dataclass import dataclass
from oomkb.memory.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Hardware:
    """The smallest hardware on which a job would fit."""

    gpu: str
    gpus: int
    nodes: int
    probability: float
    sharding: str | None = None
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Settings that it takes besides: checkpointing, a smaller micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """The planner's answer."""

    plans: tuple[Plan, ...] = ()
    singles: tuple[SingleFix, ...] = ()
    """What each remedy does alone, the largest saving first."""
    sizes: Callable[[], Mapping[str, int]] = field(default=dict, repr=False, compare=False)
    """Works :attr:`largest` out, which few ask for."""
    nothing_fits: Message | None = None
    """Said where no combination of settings fits this hardware, with the smallest that would."""
    hardware: Hardware | None = None
    before: Estimate | None = None
    notes: tuple[Message, ...] = ()
    """What the plans take for granted, such as a calibration against the failure."""

    @property
    def largest(self) -> Mapping[str, int]:
        """The largest ``micro_batch`` and ``seq_len`` that fit with everything else as it is; 0 where none does."""
        return self.sizes()


@dataclass(frozen=True, slots=True)
class Knob:
    """One row of the table before a run: a setting and what it buys."""

    change: Change
    peak_bytes: int
    fits_probability: float
    relative_speed: float
    safety: Safety


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Does it fit, what is the largest that does, which knob buys what."""

    estimate: Estimate
    fits: bool | None
    fits_probability: float | None
    knobs: tuple[Knob, ...]
    planning: Planning
