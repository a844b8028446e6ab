"""A sequence of events through the allocator: what was reserved, when, and what could not be served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from oomkb.dataclass import dataclass
from oomkb.memory.allocator.blocks import Block
from oomkb.memory.allocator.caching import CachingAllocator
from oomkb.memory.allocator.config import AllocatorConfig
from oomkb.memory.allocator.events import ALLOC, COMPLETE, EMPTY, FREE, MARK, USE, Event
from oomkb.memory.allocator.history import OutOfMemory


@dataclass(frozen=True, slots=True)
class Point:
    """The allocator after an event; sizes in bytes."""

    event: int
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request that failed."""

    name: str
    where: str
    """The last point of the program that has a name."""
    size: int
    largest_free: int
    free: int
    """Free bytes in all, cached or the driver's."""

    @property
    def fragmented(self) -> bool:
        """Whether enough was free, but not in one piece."""
        return self.free >= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of it; sizes in bytes."""

    allocator: CachingAllocator
    allocated: int
    """The peak of ``torch.cuda.memory_allocated``."""
    requested: int
    """The same before sizes were rounded."""
    reserved: int
    """The peak of ``torch.cuda.memory_reserved``."""
    largest_free: int
    """The largest free block when most was reserved."""
    free_cached: int
    """All free blocks at that time."""
    refused: Refused | None
    retries: int
    timeline: tuple[Point, ...] = field(repr=False)
    marks: tuple[tuple[int, str], ...] = ()
    """(event, name)."""

    @property
    def fragmentation(self) -> float:
        """Share of the reserved bytes that no tensor used when most was allocated."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


def replay(
    events: Iterable[Event], capacity: int, config: AllocatorConfig | None = None, *, trace: bool = False
) -> Replayed:
    """Run events until the end, or until a request is refused.

    :param capacity: bytes the process can get of the driver.
    :param trace: keep the history that a snapshot shows.
    """
    a = CachingAllocator(capacity, config, trace=trace)
    blocks: dict[int, Block] = {}
    points: list[Point] = []
    marks: list[tuple[int, str]] = []
    where, refused, most, largest, cached = "", None, 0, 0, 0
    for at, (what, number, size, stream, name) in enumerate(events):
        if what == ALLOC:
            try:
                blocks[number] = a.malloc(size, stream, name)
            except OutOfMemory as failed:
                free = failed.free + failed.reserved - failed.allocated
                refused = Refused(
                    name=name, where=where, size=failed.requested, largest_free=failed.largest_free, free=free
                )
                break
        elif what == FREE:
            block = blocks.pop(number, None)
            if block is not None:
                a.free(block)
        elif what == USE:
            a.record(blocks[number], stream)
        elif what == COMPLETE:
            a.complete(stream)
        elif what == EMPTY:
            a.empty_cache()
        elif what == MARK:
            where = name
            marks.append((at, name))
            continue
        if a.reserved > most:
            most = a.reserved
            largest, cached = a.largest_free(), a.reserved - a.allocated
        points.append(Point(at, a.allocated, a.reserved))
    return Replayed(
        allocator=a,
        allocated=a.peak_allocated,
        requested=a.peak_requested,
        reserved=a.peak_reserved,
        largest_free=largest,
        free_cached=cached,
        refused=refused,
        retries=a.retries,
        timeline=tuple(points),
        marks=tuple(marks),
    )
