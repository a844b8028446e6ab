"""The caching allocator: against the compiled original's answers, by hand from the C++, and by properties.

``data/allocator.jsonl``: sequences of events with what ``libc10_cuda.so`` of torch 2.13.0 answered to each, under the
settings that runs use (``bench/real_allocator.py --record``).
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomkb.errors import JobError
from oomkb.memory.allocator.caching import CachingAllocator
from oomkb.memory.allocator.config import AllocatorConfig, parse, rounded, segment_size
from oomkb.memory.allocator.events import Recorder
from oomkb.memory.allocator.history import OutOfMemory
from oomkb.memory.allocator.replay import replay
from oomkb.units import GIB, MIB

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "allocator.jsonl").read_text(encoding="utf-8").splitlines()
]
FIRST = 0x7000_0000_0000
STATES = {"active_allocated": "allocated", "active_pending_free": "waiting", "inactive": "free"}


def allocator(capacity=GIB, conf=""):
    return CachingAllocator(capacity, parse(conf))


def run(allocator, commands):
    """What the recorded commands do, each answered as the original's program answers."""
    blocks, out = {}, []
    for command in commands:
        what, *numbers = command.split()
        at = "0"
        if what == "a":
            number, size, stream = map(int, numbers)
            try:
                blocks[number] = allocator.malloc(size, stream)
                at = str(blocks[number].address - FIRST)
            except OutOfMemory:
                at = "oom"
        elif what == "f" and int(numbers[0]) in blocks:
            allocator.free(blocks.pop(int(numbers[0])))
        elif what == "u" and int(numbers[0]) in blocks:
            allocator.record(blocks[int(numbers[0])], int(numbers[1]))
        elif what == "d":
            allocator.complete(int(numbers[0]))
        elif what == "e":
            allocator.empty_cache()
        out.append(f"{at} {allocator.allocated} {allocator.reserved}")
    a = allocator
    out.append(f"peak {a.peak_allocated} {a.peak_reserved} retries {a.retries} ooms {a.ooms}")
    for blocks_of in a.segments():
        head = blocks_of[0]
        size, large = sum(b.size for b in blocks_of), int(not head.pool.small)
        out.append(f"segment {head.address - FIRST} {size} {head.stream} {large}")
        out += [f"block {b.size} {STATES[b.state]}" for b in blocks_of]
    return out


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["conf"] or "defaults")
def test_the_original_answers_the_same(row):
    assert run(allocator(row["capacity"], row["conf"]), row["commands"]) == row["answers"]


def test_every_kind_of_setting_was_recorded():
    assert {row["conf"] for row in RECORDED} == {"", "expandable_segments:True", "max_split_size_mb:64"}
    assert any("oom" in answer for row in RECORDED for answer in row["answers"])


# -- by hand, from the C++ ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
    ],
)
def test_sizes_of_blocks_and_segments(size, block, segment):
    a = allocator()
    assert a.malloc(size).size >= block
    assert rounded(size) == block
    assert a.reserved == segment


def test_small_requests_share_a_segment_and_large_ones_another():
    a = allocator()
    one, two, three = a.malloc(1000), a.malloc(1000), a.malloc(3 * MIB)
    assert two.address == one.address + 1024
    assert three.address == one.address + 2 * MIB
    assert a.reserved == 22 * MIB


def test_a_large_block_is_split_only_where_more_than_a_mebibyte_is_left():
    a = allocator()
    a.free(a.malloc(20 * MIB))
    assert a.malloc(19 * MIB).size == 20 * MIB
    b = allocator()
    b.free(b.malloc(20 * MIB))
    assert b.malloc(19 * MIB - 512).size == 19 * MIB - 512
    assert b.largest_free() == MIB + 512


def test_the_smallest_block_that_fits_is_taken():
    a = allocator()
    blocks = [a.malloc(size * MIB) for size in (40, 24, 30)]
    kept = blocks[1].address
    for block in blocks:
        a.free(block)
    assert a.malloc(22 * MIB).address == kept


def test_freed_neighbours_are_joined():
    a = allocator()
    a.free(a.malloc(60 * MIB))
    parts = [a.malloc(20 * MIB) for _ in range(3)]
    assert a.reserved == 60 * MIB
    for i in (0, 2, 1):
        a.free(parts[i])
    assert a.largest_free() == 60 * MIB
    assert a.malloc(60 * MIB).address == parts[0].address


def test_a_block_of_one_stream_does_not_serve_another():
    a = allocator()
    a.free(a.malloc(20 * MIB, 0))
    a.malloc(20 * MIB, 1)
    assert a.reserved == 40 * MIB


def test_a_recorded_use_delays_the_free_until_that_stream_is_done():
    a = allocator()
    block = a.malloc(20 * MIB, 1)
    a.record(block, 0)
    a.free(block)
    assert a.allocated == 0
    assert a.malloc(20 * MIB, 1).address != block.address
    a.complete(0)
    assert a.malloc(20 * MIB, 1).address == block.address


def test_whole_cached_segments_are_given_back_before_a_request_fails():
    a = allocator(100 * MIB)
    a.free(a.malloc(60 * MIB))
    a.malloc(80 * MIB)
    assert (a.reserved, a.retries, a.ooms) == (80 * MIB, 1, 0)


def test_a_split_segment_is_not_given_back_and_the_request_fails_though_enough_is_free():
    a = allocator(100 * MIB)
    block = a.malloc(60 * MIB)
    a.free(block)
    a.malloc(20 * MIB)
    with pytest.raises(OutOfMemory) as failed:
        a.malloc(60 * MIB)
    assert failed.value.fragmented
    assert (failed.value.free, failed.value.largest_free) == (40 * MIB, 40 * MIB)
    joined = allocator(100 * MIB, "expandable_segments:True")
    joined.free(joined.malloc(60 * MIB))
    joined.malloc(20 * MIB)
    joined.malloc(60 * MIB)
    assert joined.reserved == 80 * MIB


def test_oversize_blocks_are_neither_split_nor_given_to_small_requests():
    a = allocator(GIB, "max_split_size_mb:64")
    a.free(a.malloc(100 * MIB))
    a.malloc(30 * MIB)
    assert a.reserved == 130 * MIB
    assert a.malloc(90 * MIB).size == 100 * MIB
    a.free(a.malloc(200 * MIB))
    a.malloc(150 * MIB)  # 200 is more than 20 MiB too much
    assert a.reserved == 480 * MIB


def test_an_expandable_segment_grows_in_pages_and_gives_whole_ones_back():
    a = allocator(GIB, "expandable_segments:True")
    first = a.malloc(30 * MIB)
    assert a.reserved == 40 * MIB
    second = a.malloc(30 * MIB)
    assert second.address == first.address + 30 * MIB
    assert a.reserved == 60 * MIB
    a.free(second)
    a.empty_cache()
    assert a.reserved == 40 * MIB


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:10",
        "max_split_size_mb:x",
        "expandable_segments:yes",
        "roundup_power2_divisions:4",
        "no_such_setting:1",
        "max_split_size_mb",
        "backend:cudaMallocAsync",
        "large_segment_size_mb:64",
    ],
)
def test_settings_that_are_refused(text):
    with pytest.raises(JobError):
        parse(text)


def test_settings_are_read_with_spaces():
    found = parse("max_split_size_mb: 128, garbage_collection_threshold:0.8,expandable_segments:True")
    assert found.max_split_size == 128 * MIB
    assert found.expandable
    assert parse("") == AllocatorConfig()


# -- properties --------------------------------------------------------------------------------------------------------

SIZES = st.one_of(st.integers(1, 4096), st.integers(MIB // 2, 3 * MIB), st.integers(8 * MIB, 90 * MIB))
STEPS = st.lists(st.tuples(st.sampled_from("aaaffude"), SIZES, st.integers(0, 2), st.integers(0, 30)), max_size=120)
CONFS = st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:32"])


def check(a):
    """No overlap; every byte of a segment in one block; the counts are those of the blocks."""
    segments = a.segments()
    ranges = sorted((blocks[0].address, sum(b.size for b in blocks)) for blocks in segments)
    assert all(at + size <= after for (at, size), (after, _) in pairwise(ranges))
    for blocks in segments:
        at = blocks[0].address
        for block in blocks:
            assert block.address == at
            at += block.size
        free = [b.idle for b in blocks]
        assert not any(x and y for x, y in pairwise(free)), "neighbours that are free are one"
    assert sum(size for _, size in ranges) == a.reserved
    assert sum(b.size for blocks in segments for b in blocks if b.allocated) == a.allocated
    assert a.allocated <= a.reserved <= a.capacity
    assert a.peak_allocated >= a.allocated
    assert a.peak_reserved >= a.reserved


@settings(max_examples=150, deadline=None)
@given(STEPS, CONFS, st.sampled_from([128, 512]))
def test_blocks_never_overlap_and_bytes_are_kept(steps, conf, capacity):
    a, alive = allocator(capacity * MIB, conf), []
    for what, size, stream, pick in steps:
        before = a.peak_allocated, a.peak_reserved
        if what == "a":
            try:
                alive.append(a.malloc(size, stream))
                assert alive[-1].size >= size
            except OutOfMemory:
                assert a.capacity - a.reserved < segment_size(size) * 2
        elif what == "f" and alive:
            a.free(alive.pop(pick % len(alive)))
        elif what == "u" and alive:
            a.record(alive[pick % len(alive)], stream)
        elif what == "d":
            a.complete(stream)
        elif what == "e":
            a.empty_cache()
        check(a)
        assert (a.peak_allocated, a.peak_reserved) >= before
    for block in alive:
        a.free(block)
    a.empty_cache()
    assert (a.allocated, a.reserved) == (0, 0)


def test_a_replay_says_what_failed_and_where():
    recorder = Recorder()
    recorder.mark("step 1")
    first = recorder.alloc(60 * MIB, "first")
    recorder.free(first)
    recorder.alloc(20 * MIB, "second")
    recorder.alloc(60 * MIB, "third")
    found = replay(recorder, 100 * MIB)
    assert found.refused is not None
    assert (found.refused.name, found.refused.where, found.refused.fragmented) == ("third", "step 1", True)
    assert replay(recorder, 200 * MIB).refused is None
    assert replay(recorder, 200 * MIB).reserved == 120 * MIB
