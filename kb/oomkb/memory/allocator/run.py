"""A job's first steps replayed on its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.allocator.config import AllocatorConfig, parse
from oomkb.memory.allocator.replay import Replayed, replay
from oomkb.memory.allocator.training import STEPS, training_events
from oomkb.memory.device import Device, capacity_bytes_of
from oomkb.memory.job import Job
from oomkb.memory.overhead import outside_bytes
from oomkb.memory.setting import resolve_setting
from oomkb.memory.shape import ModelShape

_NO_LIMIT: Final = 1 << 48


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorRun:
    """The replay with all the memory it wants, and within the card where that is known; sizes in bytes."""

    free: Replayed
    held: Replayed | None
    """Within the card; ``None`` where its capacity is not known."""
    capacity: int | None
    """What the driver has for the allocator: the card less context and communication."""
    joined: Replayed | None
    """The same within the card with expandable segments, where a request was refused without them."""
    config: AllocatorConfig
    steps: int
    changing: bool
    """Batches change their length, drawn as :func:`oomkb.memory.allocator.training.lengths` says."""

    @property
    def shown(self) -> Replayed:
        """The one that is like the run: within the card, where that is known."""
        return self.held or self.free


def config_of(job: Job) -> AllocatorConfig:
    """What the job's environment tells the allocator.

    :raises JobError: for a setting that PyTorch refuses.
    """
    return parse(job.env.get("PYTORCH_ALLOC_CONF") or job.env.get("PYTORCH_CUDA_ALLOC_CONF") or "")


def replayed_job(
    job: Job,
    shape: ModelShape,
    device: Device | None = None,
    *,
    shapes: Mapping[str, ModelShape] | None = None,
    steps: int = STEPS,
) -> AllocatorRun:
    """Play the first ``steps`` optimizer steps of one GPU and replay their allocations: a second or few.

    :raises JobError: for a job that is not played, and for allocator settings that PyTorch refuses.
    """
    config, events = config_of(job), training_events(job, shape, device, shapes=shapes, steps=steps).events
    s = resolve_setting(job, shape)
    capacity = capacity_bytes_of(job, device)
    room = None if capacity is None else max(0, round(capacity - outside_bytes(s, device)))
    held = None if room is None else replay(events, room, config, trace=True)
    whole = held if held is not None and not held.refused and not held.retries else None
    refused = held is not None and held.refused is not None and not config.expandable
    joined = replay(events, room or 0, replace(config, expandable=True)) if refused else None
    return AllocatorRun(
        free=whole or replay(events, _NO_LIMIT, config, trace=held is None),
        held=held,
        joined=joined,
        capacity=room,
        config=config,
        steps=steps,
        changing=s.dynamic,
    )
