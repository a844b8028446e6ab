"""A replay as PyTorch's own memory snapshot, for ``pytorch.org/memory_viz`` and ``torch.cuda._memory_viz``.

The form is that of ``torch.cuda.memory._snapshot()`` (torch 2.13, ``torch/csrc/cuda/memory_snapshot.cpp``): segments
with their blocks as they are at the end, and the history of one device. What a block is for stands where a snapshot
has the frames of the call; times are counts of events, in microseconds.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from oomkb.memory.allocator.blocks import Block
from oomkb.memory.allocator.caching import CachingAllocator
from oomkb.memory.allocator.config import AllocatorConfig
from oomkb.memory.allocator.history import TraceEntry


def snapshot(allocator: CachingAllocator) -> dict[str, Any]:
    """What ``torch.cuda.memory._snapshot()`` would give; the allocator has to have kept its trace."""
    return {
        "segments": [_segment(blocks) for blocks in allocator.segments()],
        "device_traces": [[_entry(i, entry) for i, entry in enumerate(allocator.trace or ())]],
        "allocator_settings": _settings(allocator.config),
        "external_annotations": [],
    }


def write_snapshot(allocator: CachingAllocator, path: Path) -> None:
    """Pickle it."""
    path.write_bytes(pickle.dumps(snapshot(allocator)))


def _frames(name: str) -> list[dict[str, Any]]:
    return [{"name": name, "filename": "oomdoc", "line": 0}] if name else []


def _segment(blocks: list[Block]) -> dict[str, Any]:
    head = blocks[0]
    active = [b for b in blocks if not b.idle]
    return {
        "device": 0,
        "address": head.address,
        "total_size": sum(b.size for b in blocks),
        "allocated_size": sum(b.size for b in blocks if b.allocated),
        "active_size": sum(b.size for b in active),
        "requested_size": sum(b.requested for b in active),
        "stream": head.stream,
        "segment_type": "small" if head.pool.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": head.segment is not None,
        "frames": [],
        "blocks": [
            {
                "address": b.address,
                "size": b.size,
                "requested_size": b.requested,
                "state": b.state,
                "frames": _frames(b.name),
            }
            for b in blocks
        ],
    }


def _entry(i: int, entry: TraceEntry) -> dict[str, Any]:
    place = "device_free" if entry.action == "oom" else "addr"
    return {
        "action": entry.action,
        place: entry.address,
        "size": entry.size,
        "stream": entry.stream,
        "time_us": i,
        "frames": _frames(entry.name),
    }


def _settings(c: AllocatorConfig) -> dict[str, Any]:
    return {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": c.max_split_size,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": c.expandable,
        "roundup_power2_divisions": {},
    }
