"""The estimate: phase by term, the peak and its owner, an interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from oomkb.memory.job import Assumption

__all__ = ["METERS", "PHASES", "Estimate", "Interval", "Phase"]

METERS: Final = ("allocated", "reserved", "process")
PHASES: Final = (
    "load",
    "engine-init",
    "rollout",
    "weight-sync",
    "forward",
    "loss",
    "backward",
    "optimizer-step",
    "evaluation",
    "save",
    "serving",
)


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value lies with probability ``level``, in bytes."""

    low_bytes: float
    high_bytes: float
    level: float = 0.9


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase at its fullest instant: terms in bytes per GPU, by name, adding up to the total."""

    terms_bytes: Mapping[str, float]

    @property
    def total_bytes(self) -> float:
        """The terms' sum."""
        return sum(self.terms_bytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one GPU holds; sizes in bytes."""

    allocated_bytes: float
    reserved_bytes: float
    process_bytes: float
    intervals: Mapping[str, Interval]
    """By meter: ``allocated reserved process``."""
    phases: Mapping[str, Phase]
    peak_phase: str
    params: int
    """Parameters of the whole model."""
    trainable: int
    host_bytes: float = 0.0
    """Host memory of one machine."""
    capacity_bytes: float | None = None
    fits_probability: float | None = None
    assumed: Mapping[str, Assumption] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Term name -> formula and source."""

    @property
    def fits(self) -> bool | None:
        """Whether ``process`` stays within the capacity; ``None`` where the capacity is not known."""
        return None if self.capacity_bytes is None else self.process_bytes <= self.capacity_bytes

    @property
    def owner(self) -> str:
        """The largest term of the peak phase."""
        terms = self.phases[self.peak_phase].terms_bytes
        return max(terms, key=lambda name: terms[name])
