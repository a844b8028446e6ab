"""Prices of derived jobs, each computed once: the estimate, the probability that it fits, the speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import field, replace
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from oomdoc.diagnosis.planning.moves import derive
from oomdoc.diagnosis.planning.printed import EngineCache
from oomdoc.diagnosis.result import Change, Plan, Safety, SingleFix
from oomdoc.diagnosis.throughput import Throughput, relative_speed, throughput
from oomdoc.evidence import Message
from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.frameworks import complete
from oomkb.memory.device import Device
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.pricing import device_of, extra_model_shapes, price
from oomkb.units import GIB


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
    needed_bytes: float
    """What the process then cannot do without."""
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


_SETTLING: Final = 24
"""Rounds until a need and the capacity it is one of agree."""


def _key(fields: Mapping[str, Any]) -> str:
    return repr(sorted(fields.items(), key=itemgetter(0)) if len(fields) > 1 else [*fields.items()])


_AS_IT_IS: Final = _key({})
# Fields on which a framework's own defaults hang: with one of them changed the job is completed anew.
_STRUCTURAL: Final = frozenset({"sharding", "method", "quant", "autocast", "world", "gpu", "serving.max_model_len"})


_MEASURED: Final = 0.95
"""Probability that an engine starts with what it measured itself."""


@dataclass(frozen=True, slots=True)
class Price:
    """A derived job and what it costs."""

    job: Job
    estimate: Estimate
    probability: float
    speed: float
    """Relative to the job as it is."""


@dataclass
class Prices:
    """Pricing around one job. Deterministic; holds every price it has computed.

    :param stated: the job as the person states it; defaults are filled per framework.
    :param careful: whether what is open is filled as a careful person starts.
    :param scale: what reality took for every byte of the estimate; room is counted in the estimate's own bytes.
    """

    stated: Job
    capacity_bytes: float | None = None
    scale: float = 1.0
    careful: bool = False
    engine: EngineCache | None = None
    """What the engine printed of its own cache."""
    failed_phase: str | None = None
    """The phase that must become smaller, where it is another than that of the predicted peak."""
    shape: ModelShape = field(init=False)
    device: Device | None = field(init=False)
    job: Job = field(init=False)
    _memory: dict[str, Price | None] = field(init=False, default_factory=dict)
    _jobs: dict[str, Job | None] = field(init=False, default_factory=dict)
    _speed: Throughput = field(init=False)
    _others: Mapping[str, ModelShape] = field(init=False)

    def __post_init__(self) -> None:
        if self.capacity_bytes is None and self.scale == 1.0 and self.engine is None:
            self._memory, self._jobs = _remembered(self.stated, self.careful)
        priced = price(self.stated, careful=self.careful)
        self._others = extra_model_shapes(priced.job)
        self.job, self.shape, self.device = priced.job, priced.shape, priced.device
        self._speed = throughput(self.job, self.shape, self.device)
        if self.capacity_bytes is None:
            self.capacity_bytes = priced.estimate.capacity_bytes
            if self.scale == 1.0 and self.engine is None:
                self._memory[_key({})] = self._priced(self.job, priced.estimate, self.device)

    @property
    def room_bytes(self) -> float:
        """The capacity in the estimate's own bytes; infinite where it is not known."""
        return self.capacity_bytes / self.scale if self.capacity_bytes is not None else float("inf")

    @property
    def needed_bytes(self) -> float:
        """The capacity at which the job as it is fits as likely as not; cached blocks are no need.

        A colocated engine takes a share of whatever the card has, so the need is one of a capacity.
        """
        capacity = found = self.base.estimate.needed_bytes or 0.0
        for _ in range(_SETTLING if self.job.rollout is not None else 0):
            found = self._estimated(self.job, self.device, capacity).needed_bytes or 0.0
            if abs(found - capacity) < 1e-4 * capacity:
                break
            capacity = found
        return found

    def recalibrated(self, capacity_bytes: float | None, scale: float) -> Prices:
        """Fresh prices for the same job with another capacity and scale; these, where nothing differs."""
        if capacity_bytes == self.capacity_bytes and scale == self.scale:
            return self
        found = copy(self)
        found.capacity_bytes, found.scale, found._memory = capacity_bytes, scale, {}
        return found

    def failing_in(self, phase: str) -> Prices:
        """The same, for a run that failed in another phase than that of the predicted peak."""
        found = copy(self)
        found.failed_phase = phase
        return found

    def measured_by(self, engine: EngineCache | None) -> Prices:
        """The same, bounded by what an engine printed of its cache, if it did; the job as it is was priced before."""
        if engine is None:
            return self
        found = copy(self)
        found.engine, found._memory = engine, {_key({}): self.base}
        return found

    @property
    def base(self) -> Price:
        """The job as it is."""
        found = self._memory.get(_AS_IT_IS) or self.of({})  # asked for hundreds of times in a search
        assert found is not None
        return found

    def of(self, fields: Mapping[str, Any]) -> Price | None:
        """The price with these fields set; ``None`` for a job that cannot be run."""
        key = _key(fields)
        if key not in self._memory:
            self._memory[key] = self._compute(fields, key)
        return self._memory[key]

    def job_with(self, fields: Mapping[str, Any]) -> Job | None:
        """The completed job with these fields set; ``None`` for an impossible one."""
        return self._job_of(fields, _key(fields))

    def _job_of(self, fields: Mapping[str, Any], key: str) -> Job | None:
        if key not in self._jobs:
            self._jobs[key] = self._derived(fields)
        return self._jobs[key]

    def _derived(self, fields: Mapping[str, Any]) -> Job | None:
        if not fields.keys() & _STRUCTURAL:
            return derive(self.job, fields)
        # Assumed values may follow from the changed field: they are dropped and filled again. Batch and layout stay.
        keep = ("micro_batch", "grad_accum", "seq_len", "world", "gpus", "nodes", "grad_ckpt", "framework")
        own = {n.partition(".")[0] for n in self.stated.assumed}  # chosen or inferred before pricing
        kept = {*keep, *own}
        drop = {n: None for n in self.job.assumed if n.partition(".")[0] not in kept and n not in fields}
        if "world" in fields or "gpus" in fields:
            drop.setdefault("dp", None)
        plain = derive(self.job, {**drop, **fields})
        return complete(plain, careful=self.careful) if plain is not None else None

    def _compute(self, fields: Mapping[str, Any], key: str) -> Price | None:
        job = self._job_of(fields, key)
        if job is None:
            return None
        other = "gpu" in fields
        device = device_of(job) if other else self.device
        capacity = (float(device.capacity_bytes) if device else None) if other else self.capacity_bytes
        usable = capacity / self.scale if capacity is not None else None
        try:
            found = self._estimated(job, device, usable)
        except OomdocError:
            return None
        if found.capacity_bytes != capacity:
            found = replace(found, capacity_bytes=capacity)
        return self._priced(job, found, device)

    def _priced(self, job: Job, found: Estimate, device: Device | None) -> Price:
        probability = found.fits_probability if found.fits_probability is not None else 1.0
        if self.engine is not None and self.engine.refuses(job):
            probability = 0.0
        elif self.engine is not None and self.engine.accepts(job) and found.holds_need:
            probability = max(probability, _MEASURED)
        pace = throughput(job, self.shape, device, found.host_bytes)
        return Price(job, found, probability, relative_speed(self._speed, pace))

    def _estimated(self, job: Job, device: Device | None, capacity_bytes: float | None) -> Estimate:
        """The job on a card with so much room, which decides before what the job or the catalogue states."""
        if device is None and capacity_bytes is not None:
            job = job.with_fields({"capacity_gib": capacity_bytes / GIB})
        if device is not None and capacity_bytes is not None and abs(device.capacity_bytes - capacity_bytes) >= 1:
            device = replace(device, capacity_bytes=round(capacity_bytes))
        return estimate(job, self.shape, device, shapes=self._others)


@lru_cache(maxsize=4)
def _remembered(_stated: Job, _careful: bool) -> tuple[dict[str, Price | None], dict[str, Job | None]]:
    """Prices and jobs by their changes: several questions about one run are asked in an answer and in a talk."""
    return {}, {}
