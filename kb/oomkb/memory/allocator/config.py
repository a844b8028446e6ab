"""``PYTORCH_CUDA_ALLOC_CONF``: the settings of the caching allocator that runs use, read as torch 2.13 reads it.

Sources: ``c10/core/AllocatorConfig.h`` and ``.cpp``, ``c10/cuda/CUDAAllocatorConfig.h`` (torch 2.13). Sizes in bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.units import MIB

MIN_BLOCK: Final = 512
"""Every size is a multiple of this (``kMinBlockSize``)."""
SMALL: Final = MIB
"""The largest request of the small pool (``kSmallSize``)."""
SMALL_SEGMENT: Final = 2 * MIB
"""Segments of the small pool (``kSmallBuffer``)."""
LARGE_SEGMENT: Final = 20 * MIB
"""Segments that requests between 1 and 10 MiB share, and the pages of a large expandable segment (``kLargeBuffer``)."""
MAX_NON_SPLIT_ROUNDING: Final = 20 * MIB
"""How much larger than a request that is never split a cached block may be (``kLargeBuffer``)."""
_LARGE_FROM: Final = 10 * MIB
"""Requests below share a large segment (``kMinLargeAlloc``)."""
_ROUND_LARGE: Final = 2 * MIB
_UNLIMITED: Final = 2**63
_IGNORED: Final = frozenset(
    {
        "backend:native",
        "expandable_segments:false",
        "release_lock_on_cudamalloc",
        "graph_capture_record_stream_reuse",
        "throw_on_cudamalloc_oom",
        "garbage_collection_threshold",
    }
)
"""Settings that change nothing here: of locks and CUDA graphs, and what counts beside a memory fraction alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorConfig:
    """Settings of the native backend, with its defaults."""

    max_split_size: int = _UNLIMITED
    """Blocks of this size and above are never split, in bytes."""
    expandable: bool = False


def rounded(size: int) -> int:
    """The bytes of a block for ``size`` bytes (``round_size``)."""
    return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)


def segment_size(size: int) -> int:
    """The bytes that are asked of the driver for a block of ``size`` (``get_allocation_size``)."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < _LARGE_FROM:
        return LARGE_SEGMENT
    return -(-size // _ROUND_LARGE) * _ROUND_LARGE


def parse(text: str) -> AllocatorConfig:
    """The settings of ``PYTORCH_CUDA_ALLOC_CONF`` (or ``PYTORCH_ALLOC_CONF``).

    :raises JobError: for a value that PyTorch refuses, and for a setting that is not replayed.
    """
    found = AllocatorConfig()
    for setting in filter(None, "".join(text.split()).split(",")):
        name, _, value = setting.partition(":")
        if name == "max_split_size_mb" and value.isdecimal() and int(value) * MIB >= LARGE_SEGMENT:
            found = replace(found, max_split_size=int(value) * MIB)
        elif (name, value.lower()) == ("expandable_segments", "true"):
            found = replace(found, expandable=True)
        elif not value or not (name.startswith("pinned_") or {name, setting.lower()} & _IGNORED):
            raise _refused(name, value)
    return found


def _refused(name: str, value: str) -> JobError:
    return JobError(
        f"{name}:{value} is no setting that PyTorch takes, or none that is replayed",
        where="env.PYTORCH_CUDA_ALLOC_CONF",
        hint="expandable_segments and max_split_size_mb are; see PyTorch's notes/cuda page",
    )
