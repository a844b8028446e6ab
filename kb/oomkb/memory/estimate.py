"""The estimate: phase by term, the peak and its owner, an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeVar

from oomkb.dataclass import dataclass
from oomkb.errors import Note
from oomkb.memory.job import Assumption

METERS: Final = ("allocated", "reserved", "process")
PHASES: Final = (
    "load",
    "engine-init",
    "rollout",
    "weight-sync",
    "log-probabilities",
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
    total_bytes: float = field(init=False, repr=False, compare=False)
    """The terms' sum."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "total_bytes", sum(self.terms_bytes.values()))


V = TypeVar("V")


class Later(Mapping[str, V]):
    """A part of an answer that is worked out when it is first looked at: of fifty estimates few show theirs."""

    def __init__(self, make: Callable[[], Mapping[str, V]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, V]:
        return self._make()

    def __getitem__(self, name: str) -> V:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self._made),)


def fuller(one: Phase, other: Phase) -> Phase:
    """The phase that holds more."""
    return one if one.total_bytes >= other.total_bytes else other


def merged(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    """Both phases' terms."""
    out = dict(a)
    for name, size in b.items():
        out[name] = out.get(name, 0.0) + size
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What an inference engine makes of its share of the card, per GPU."""

    cache_bytes: float
    """The pool of keys and values."""
    needed_bytes: float
    """What ``at_once`` requests of ``length`` tokens keep in it."""
    length: int
    """``max_model_len``, stated or taken."""
    largest_length: int | None = None
    """The longest ``max_model_len`` with which they find their cache; ``None`` where the card is not known."""
    at_once: int = 1
    """Requests that are to find their cache at once."""
    shared_bytes: float = 0.0
    """What the engine's share is a share of: the card, or what loading leaves of it (``of_the_rest``)."""
    of_the_rest: bool = False

    @property
    def requests(self) -> float:
        """Requests of the full length that the pool holds at once (vLLM's ``Maximum concurrency``)."""
        return self.at_once * self.cache_bytes / self.needed_bytes if self.needed_bytes else 0.0

    @property
    def token_bytes(self) -> float:
        """What a token of a request of the full length keeps."""
        return self.needed_bytes / (self.at_once * self.length)

    @property
    def tokens(self) -> int:
        """Tokens that the pool holds, of requests of the full length."""
        return int(self.requests * self.length)

    @property
    def starts(self) -> bool:
        """Whether the requests find their cache."""
        return self.largest_length is None or self.length <= self.largest_length


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
    """Host memory of one machine: the tensors that are offloaded."""
    host_most_bytes: float = 0.0
    """With pinned blocks rounded up and kept, unless it is known that none is pinned."""
    nvme_bytes: float = 0.0
    """On the drives of one machine: the states and weights that are offloaded there."""
    sequence_tokens: int = 0
    """Tokens of one sequence of training, those of images included."""
    image_tokens: int = 0
    """Those of its images and videos."""
    host_phases: Mapping[str, Phase] = field(default_factory=lambda: MappingProxyType({}))
    """Host memory of one machine while it loads, trains and saves, by terms (:mod:`oomkb.memory.offload`)."""
    capacity_bytes: float | None = None
    fits_probability: float | None = None
    needed_bytes: float | None = None
    """What the process cannot do without: blocks that it only caches, and a cache beyond one request, come on top."""
    assumed: Mapping[str, Assumption] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[Note, ...] = ()
    served: Served | None = None
    """For an inference engine."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Term name -> formula and source."""

    @property
    def fits(self) -> bool | None:
        """Whether what the card must hold fits it, and an engine starts; ``None`` where the card is not known.

        The side of ``fits_probability`` that is likelier. What the allocator caches is given back before it runs out.
        """
        if self.capacity_bytes is None:
            return None
        if self.served is not None and not self.served.starts:
            return False
        if self.fits_probability is not None:
            return self.fits_probability >= 0.5
        return self.holds_need

    @property
    def holds_need(self) -> bool:
        """Whether the card, as far as it is known, has room for what the process cannot do without."""
        return (self.needed_bytes or self.process_bytes) <= (self.capacity_bytes or math.inf)

    @property
    def owner(self) -> str:
        """The largest term of the peak phase."""
        terms = self.phases[self.peak_phase].terms_bytes
        return max(terms, key=lambda name: terms[name])
