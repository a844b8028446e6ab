"""Blocks of the caching allocator, the pools of free ones, and ranges of addresses that grow.

``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13): ``Block``, ``BlockPool``, ``ExpandableSegment``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class Segment:
    """A range of addresses into which pages are mapped (expandable segments)."""

    __slots__ = ("base", "page", "size")

    def __init__(self, base: int, size: int, page: int) -> None:
        self.base, self.size, self.page = base, size, page


class Block:
    """A piece of a segment, free or in use."""

    __slots__ = (
        "address",
        "allocated",
        "events",
        "mapped",
        "name",
        "next",
        "pool",
        "prev",
        "requested",
        "segment",
        "size",
        "stream",
        "uses",
    )

    def __init__(self, stream: int, size: int, pool: Pool, address: int, segment: Segment | None = None) -> None:
        self.stream, self.size, self.pool, self.address, self.segment = stream, size, pool, address, segment
        self.requested = 0
        self.allocated, self.mapped = False, True
        self.prev: Block | None = None
        self.next: Block | None = None
        self.uses: set[int] = set()
        """Other streams on which it is used."""
        self.events = 0
        """Recorded ends of such uses that have not been reached."""
        self.name = ""

    @property
    def split(self) -> bool:
        """Whether it is a part of its segment."""
        return self.prev is not None or self.next is not None

    @property
    def idle(self) -> bool:
        """Free, and no stream uses it any more."""
        return not self.allocated and not self.events and not self.uses

    @property
    def state(self) -> str:
        """As a snapshot names it."""
        return "active_allocated" if self.allocated else "inactive" if self.idle else "active_pending_free"


class Pool:
    """Free blocks, ordered by stream, size and address; unmapped ranges by stream and address."""

    __slots__ = ("_keys", "blocks", "small", "unmapped")

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self._keys: list[tuple[int, int, int]] = []
        self.blocks: dict[tuple[int, int, int], Block] = {}
        self.unmapped: list[Block] = []

    def __iter__(self) -> Iterator[Block]:
        return map(self.blocks.__getitem__, tuple(self._keys))

    def add(self, block: Block) -> None:
        """Put a free block in."""
        key = (block.stream, block.size, block.address)
        insort(self._keys, key)
        self.blocks[key] = block

    def remove(self, block: Block) -> None:
        """Take a free block out."""
        key = (block.stream, block.size, block.address)
        del self._keys[bisect_left(self._keys, key)]
        del self.blocks[key]

    def place(self, stream: int, size: int) -> int:
        """Where blocks of at least ``size`` begin for a stream."""
        return bisect_left(self._keys, (stream, size, 0))

    def at(self, place: int, stream: int | None = None) -> Block | None:
        """The block at a place; ``None`` beyond the end, or beyond the stream's."""
        if not 0 <= place < len(self._keys):
            return None
        key = self._keys[place]
        return self.blocks[key] if stream is None or key[0] == stream else None

    def largest(self) -> int:
        """The largest free block in bytes."""
        return max((key[1] for key in self._keys), default=0)

    def unmap(self, block: Block) -> None:
        """Put an unmapped range in."""
        insort(self.unmapped, block, key=lambda b: (b.stream, b.address))


def reach(block: Block) -> int:
    """How large a block of an expandable segment can grow."""
    after = block.next
    return block.size + (after.size if after is not None and not after.mapped else 0)


def splice(block: Block, before: Block | None, after: Block | None) -> None:
    """Put a block between two others."""
    block.prev, block.next = before, after
    if before is not None:
        before.next = block
    if after is not None:
        after.prev = block
