"""The allocator's history: one entry an action, and the failure of a request."""

from __future__ import annotations

from oomkb.dataclass import dataclass


@dataclass(slots=True)
class OutOfMemory(Exception):
    """A request that failed after the cache had been given back; sizes in bytes."""

    requested: int
    """Of the driver, as PyTorch's message says it ("Tried to allocate")."""
    allocated: int
    reserved: int
    free: int
    """What the driver has left."""
    largest_free: int
    """The largest free block among those that are reserved."""

    @property
    def fragmented(self) -> bool:
        """Whether what is free, reserved or not, would have been enough in one piece."""
        return self.free + self.reserved - self.allocated >= self.requested


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One line of the allocator's history, as ``torch.cuda.memory._snapshot()["device_traces"]`` has it."""

    action: str
    """``alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap oom``."""
    address: int
    """Of an ``oom``: the driver's free bytes."""
    size: int
    stream: int
    name: str
