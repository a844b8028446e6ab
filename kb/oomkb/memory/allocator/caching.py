"""The caching allocator itself: blocks, pools, segments, one device.

Written from the behaviour of ``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13) and compared with the compiled
original, ``libc10_cuda.so`` of that release run over a CUDA runtime without a GPU (``bench/real_allocator.py``): the
same addresses, allocated and reserved bytes after each event. Not modelled: CUDA graphs' private pools, peers, IPC.

Where the driver puts a segment is not PyTorch's to decide: addresses are counted up in steps of 2 MiB and never given
out twice. Of free blocks of one size the lowest is taken, so that this can matter there, and there only.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from oomkb.memory.allocator.blocks import Block, Pool, Segment, reach, splice
from oomkb.memory.allocator.config import (
    LARGE_SEGMENT,
    MAX_NON_SPLIT_ROUNDING,
    MIN_BLOCK,
    SMALL,
    SMALL_SEGMENT,
    AllocatorConfig,
    rounded,
    segment_size,
)
from oomkb.memory.allocator.history import OutOfMemory, TraceEntry
from oomkb.units import MIB

_FIRST_ADDRESS: Final = 0x7000_0000_0000
_PAGE: Final = 2 * MIB


class CachingAllocator:
    """One device's allocator over ``capacity`` bytes of driver memory."""

    def __init__(self, capacity: int, config: AllocatorConfig | None = None, *, trace: bool = False) -> None:
        self.capacity, self.config = capacity, config or AllocatorConfig()
        self.small, self.large = Pool(small=True), Pool(small=False)
        self.active: dict[int, Block] = {}
        self.trace: list[TraceEntry] | None = [] if trace else None
        self.allocated = self.reserved = self.requested = 0
        self.peak_allocated = self.peak_reserved = self.peak_requested = 0
        self.retries = self.ooms = 0
        self._waiting: dict[int, deque[tuple[int, Block]]] = {}
        self._done: dict[int, int] = {}
        self._stamp = 0
        self._next = _FIRST_ADDRESS

    # -- what programs call --------------------------------------------------------------------------------------

    def malloc(self, size: int, stream: int = 0, name: str = "") -> Block:
        """A block for ``size`` bytes, more than none.

        :raises OutOfMemory: where neither the cache nor the driver has one.
        """
        self._process_events()
        size_of_block = rounded(size)
        pool = self.small if size_of_block <= SMALL else self.large
        block = self._cached(pool, size_of_block, stream) or self._new(pool, size_of_block, stream)
        if block is None:
            self.ooms += 1
            free = self.capacity - self.reserved
            self._log("oom", free, size_of_block, stream, name)
            largest = max(self.small.largest(), self.large.largest())
            raise OutOfMemory(segment_size(size_of_block), self.allocated, self.reserved, free, largest)
        return self._taken(block, size_of_block, size, name)

    def free(self, block: Block) -> None:
        """Give a block back: into its pool once no stream uses it."""
        block.allocated = False
        self.allocated -= block.size
        self._log("free_requested", block.address, block.requested, block.stream, block.name)
        if not block.uses:
            self._freed(block)
            return
        for stream in sorted(block.uses):
            self._stamp += 1
            block.events += 1
            self._waiting.setdefault(stream, deque()).append((self._stamp, block))
        block.uses.clear()

    def record(self, block: Block, stream: int) -> None:
        """``Tensor.record_stream``: the block is used on another stream, too."""
        if stream != block.stream:
            block.uses.add(stream)

    def complete(self, stream: int) -> None:
        """All work that was asked of a stream so far is done."""
        self._done[stream] = self._stamp

    def empty_cache(self) -> None:
        """``torch.cuda.empty_cache``."""
        self._release_cached()

    def largest_free(self) -> int:
        """The largest free block in the large pool, in bytes."""
        return self.large.largest()

    def segments(self) -> list[list[Block]]:
        """All segments as their blocks, by address; of an expandable one, each range that is mapped."""
        heads = [b for b in (*self.small, *self.large, *self.active.values()) if b.prev is None or not b.prev.mapped]
        found = []
        for head in sorted(heads, key=lambda b: b.address):
            blocks, block = [], head
            while block is not None and block.mapped:
                blocks.append(block)
                if block.next is None:
                    break
                block = block.next
            found.append(blocks)
        return found

    # -- finding a block -----------------------------------------------------------------------------------------

    def _cached(self, pool: Pool, size: int, stream: int) -> Block | None:
        """The smallest free block that is large enough (``get_free_block``)."""
        c = self.config
        place = pool.place(stream, size)
        block = pool.at(place, stream)
        if block is None:
            return None
        if block.segment is not None and c.expandable:
            # What counts as the size of an expandable segment's last block is how far it can grow.
            while (after := pool.at(place + 1, stream)) is not None and block.segment is not None:
                if reach(after) >= reach(block):
                    break
                place, block = place + 1, after
        if size < c.max_split_size <= block.size:
            return None
        if size >= c.max_split_size and block.size >= size + MAX_NON_SPLIT_ROUNDING:
            return None
        pool.remove(block)
        return block

    def _new(self, pool: Pool, size: int, stream: int) -> Block | None:
        """One of the driver's, after giving back what is cached where there is no other way."""
        asked = segment_size(size)
        block = self._from_driver(pool, size, asked, stream)
        if block is None and self._release_oversize(pool, size, stream):
            block = self._from_driver(pool, size, asked, stream)
        if block is None:
            self._release_cached()
            self.retries += 1
            block = self._from_driver(pool, size, asked, stream)
        return block

    def _from_driver(self, pool: Pool, size: int, asked: int, stream: int) -> Block | None:
        if self.config.expandable:
            return self._expanded(pool, size, stream)
        if self.reserved + asked > self.capacity:
            return None
        block = Block(stream, asked, pool, self._addresses(asked))
        self._reserve(asked)
        self._log("segment_alloc", block.address, asked, stream, "")
        return block

    def _taken(self, block: Block, size: int, requested: int, name: str) -> Block:
        """The block in use, less what is split off behind it (``alloc_found_block``)."""
        if self._splits(block, size):
            rest = block
            block = Block(rest.stream, size, rest.pool, rest.address, rest.segment)
            block.prev, block.next = rest.prev, rest
            if block.prev is not None:
                block.prev.next = block
            rest.prev = block
            rest.address += size
            rest.size -= size
            rest.pool.add(rest)
        block.allocated, block.requested, block.name = True, requested, name
        self.active[block.address] = block
        self.allocated += block.size
        self.requested += requested
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_requested = max(self.peak_requested, self.requested)
        self._log("alloc", block.address, requested, block.stream, name)
        return block

    def _splits(self, block: Block, size: int) -> bool:
        rest = block.size - size
        if block.pool.small or self.config.expandable:
            return rest >= MIN_BLOCK
        return size < self.config.max_split_size and rest > SMALL

    # -- giving back ---------------------------------------------------------------------------------------------

    def _freed(self, block: Block) -> None:
        """Into its pool, joined with free neighbours (``free_block``)."""
        self._log("free_completed", block.address, block.requested, block.stream, block.name)
        del self.active[block.address]
        self.requested -= block.requested
        block.requested, block.name = 0, ""
        self._merge(block, block.prev)
        self._merge(block, block.next)
        block.pool.add(block)

    def _merge(self, block: Block, other: Block | None) -> bool:
        if other is None or not other.idle or block.mapped != other.mapped:
            return False
        if other.mapped:
            block.pool.remove(other)
        else:
            block.pool.unmapped.remove(other)
        if block.prev is other:
            block.address, block.prev = other.address, other.prev
            if block.prev is not None:
                block.prev.next = block
        else:
            block.next = other.next
            if block.next is not None:
                block.next.prev = block
        block.size += other.size
        return True

    def _process_events(self) -> None:
        for stream, queue in list(self._waiting.items()):
            done = self._done.get(stream, 0)
            while queue and queue[0][0] <= done:
                self._ended(queue.popleft()[1])
            if not queue:
                del self._waiting[stream]

    def _ended(self, block: Block) -> None:
        block.events -= 1
        if not block.events:
            self._freed(block)

    def _release_cached(self) -> None:
        """Wait for all streams, then give back every whole free segment (``release_cached_blocks``)."""
        for queue in self._waiting.values():
            for _, block in queue:
                self._ended(block)
        self._waiting.clear()
        for pool in (self.large, self.small):
            for block in [b for b in pool if b.segment is None and not b.split]:
                self._release(block)
            for block in [b for b in pool if b.segment is not None]:
                self._unmap(block)

    def _release(self, block: Block) -> None:
        self._log("segment_free", block.address, block.size, block.stream, "")
        block.pool.remove(block)
        self.reserved -= block.size

    def _release_oversize(self, pool: Pool, size: int, stream: int) -> bool:
        """Give back oversize blocks, as many as the request needs (``release_available_cached_blocks``)."""
        limit = self.config.max_split_size
        if limit >= 2**63:
            return False
        wanted = max(size, limit)
        place = pool.place(stream, wanted)
        block = pool.at(place, stream)
        if block is not None:
            self._release(block)
            return True
        released = 0
        while released < wanted:
            place -= 1
            block = pool.at(place, stream)
            if block is None or block.size < limit:
                break
            released += block.size
            self._release(block)
        return released >= wanted

    # -- expandable segments -------------------------------------------------------------------------------------

    def _expanded(self, pool: Pool, size: int, stream: int) -> Block | None:
        block = self._expandable(pool, size, stream)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            after = block.next
            assert after is not None
            if not self._map(after, min(size - block.size, after.size)):
                return None
            block = after
        pool.remove(block)
        return block

    def _expandable(self, pool: Pool, size: int, stream: int) -> Block:
        """The lowest unmapped range with room, with the free block before it (``find_expandable_block``)."""
        for unmapped in pool.unmapped:
            if unmapped.stream != stream:
                continue
            block = unmapped.prev if unmapped.prev is not None and unmapped.prev.idle else unmapped
            room, at = 0, block
            while room < size and at.idle:
                room += at.size
                if at.next is None:
                    break
                at = at.next
            if room >= size:
                return block
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        span = -(-(self.capacity + self.capacity // 8) // page) * page
        segment = Segment(self._addresses(span), span, page)
        block = Block(stream, span, pool, segment.base, segment)
        block.mapped = False
        pool.unmap(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        segment, pool = block.segment, block.pool
        assert segment is not None
        mapped = -(-size // segment.page) * segment.page
        if self.reserved + mapped > self.capacity:
            return False
        pool.unmapped.remove(block)
        block.mapped = True
        if mapped < block.size:
            rest = Block(block.stream, block.size - mapped, pool, block.address + mapped, segment)
            rest.mapped = False
            splice(rest, block, block.next)
            pool.unmap(rest)
            block.size = mapped
        address = block.address
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.add(block)
        self._reserve(mapped)
        self._log("segment_map", address, mapped, block.stream, "")
        return True

    def _unmap(self, block: Block) -> None:
        """Give back the whole pages of a free block (``unmap_block``)."""
        segment, pool = block.segment, block.pool
        assert segment is not None
        first = -(-(block.address - segment.base) // segment.page) * segment.page + segment.base
        last = (block.address + block.size - segment.base) // segment.page * segment.page + segment.base
        if first >= last:
            return
        pool.remove(block)
        end = block.address + block.size
        if first > block.address:
            before = Block(block.stream, first - block.address, pool, block.address, segment)
            splice(before, block.prev, block)
            pool.add(before)
        if end > last:
            after = Block(block.stream, end - last, pool, last, segment)
            splice(after, block, block.next)
            pool.add(after)
        block.address, block.size, block.mapped = first, last - first, False
        self._merge(block, block.prev)
        self._merge(block, block.next)
        self.reserved -= last - first
        self._log("segment_unmap", first, last - first, block.stream, "")
        if block.split:
            pool.unmap(block)

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _addresses(self, size: int) -> int:
        at = self._next
        self._next += -(-size // _PAGE) * _PAGE
        return at

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _log(self, action: str, address: int, size: int, stream: int, name: str) -> None:
        if self.trace is not None:
            self.trace.append(TraceEntry(action, address, size, stream, name))
