"""``PYTORCH_CUDA_ALLOC_CONF``: settings of the caching allocator, read as torch 2.13 reads it.

Sources: ``c10/core/AllocatorConfig.h`` and ``.cpp``, ``c10/cuda/CUDAAllocatorConfig.h`` (torch 2.13). Sizes in bytes.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
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
_LARGE_FROM: Final = 10 * MIB
"""Requests below share a large segment (``kMinLargeAlloc``)."""
_ROUND_LARGE: Final = 2 * MIB
_INTERVALS: Final = 16
"""Powers of two from 1 MiB to 64 GiB, each with its own divisions (``kRoundUpPowerOfTwoIntervals``)."""
_UNLIMITED: Final = 2**63
_TOKEN: Final = re.compile(r"[,:\[\]]|[^,:\[\]\s]+")
_IGNORED: Final = frozenset(
    {
        "pinned_use_cuda_host_register",
        "pinned_num_register_threads",
        "pinned_use_background_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_max_cached_size_mb",
        "pinned_free_catch_all",
        "release_lock_on_cudamalloc",
        "graph_capture_record_stream_reuse",
        "throw_on_cudamalloc_oom",
    }
)
"""Settings of pinned host memory, locks and CUDA graphs, which change nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorConfig:
    """Settings of the native backend, with its defaults."""

    max_split_size: int = _UNLIMITED
    """Blocks of this size and above are never split, in bytes."""
    max_non_split_rounding: int = 20 * MIB
    """How much larger than such a request a cached block may be."""
    large_segment: int = 20 * MIB
    """Segments that requests between 1 and 10 MiB share, and the pages of a large expandable segment."""
    roundup_divisions: tuple[int, ...] = (0,) * _INTERVALS
    """Divisions between two powers of two to which sizes are rounded, by interval; 0 and 1 for none."""
    expandable: bool = False
    gc_threshold: float = 0.0
    """Share of the allowed memory above which old cached blocks are given back; only with a memory fraction."""
    fraction: float | None = None
    """``per_process_memory_fraction``."""
    ignored: tuple[str, ...] = field(default=())
    """Settings that were read and change nothing here."""

    def rounded(self, size: int) -> int:
        """The bytes of a block for ``size`` bytes (``round_size``)."""
        if size < MIN_BLOCK:
            return MIN_BLOCK
        at = min(max(0, size.bit_length() - 1 - 20), _INTERVALS - 1)
        divisions = self.roundup_divisions[at]
        if divisions > 1 and size > MIN_BLOCK * divisions:
            return _next_division(size, divisions)
        return -(-size // MIN_BLOCK) * MIN_BLOCK

    def segment_size(self, size: int) -> int:
        """The bytes that are asked of the driver for a block of ``size`` (``get_allocation_size``)."""
        if size <= SMALL:
            return SMALL_SEGMENT
        if size < _LARGE_FROM:
            return self.large_segment
        return -(-size // _ROUND_LARGE) * _ROUND_LARGE


def _next_division(size: int, divisions: int) -> int:
    if size & (size - 1) == 0:
        return size
    floor = 1 << (size.bit_length() - 1)
    division = floor >> (divisions.bit_length() - 1)
    if not division:
        return floor << 1
    below = size & ~(division - 1)
    return size if below == size else below + division


def parse(text: str) -> AllocatorConfig:
    """The settings of ``PYTORCH_CUDA_ALLOC_CONF`` (or ``PYTORCH_ALLOC_CONF``).

    :raises JobError: for a value that PyTorch refuses, or another backend than the native one.
    """
    tokens = _TOKEN.findall(text)
    found, at = AllocatorConfig(), 0
    while at < len(tokens):
        name = tokens[at]
        if at + 2 >= len(tokens) or tokens[at + 1] != ":":
            raise _refused(name, "a colon and a value are expected after it")
        value, at = _value(tokens, at + 2)
        found = _with(found, name, value)
        if at < len(tokens):
            if tokens[at] != ",":
                raise _refused(name, "settings are separated by commas")
            at += 1
    if found.max_split_size < found.large_segment:
        raise _refused("max_split_size_mb", "no less than a large segment's size is taken")
    return found


def _value(tokens: list[str], at: int) -> tuple[list[str], int]:
    if tokens[at] != "[":
        return [tokens[at]], at + 1
    end = next((i for i in range(at, len(tokens)) if tokens[i] == "]"), len(tokens) - 1)
    return tokens[at + 1 : end], end + 1


def _with(c: AllocatorConfig, name: str, value: list[str]) -> AllocatorConfig:
    try:
        if name == "roundup_power2_divisions":
            return replace(c, roundup_divisions=_divisions(value))
        if name == "expandable_segments":
            return replace(c, expandable={"true": True, "false": False}[value[0].lower()])
        if name == "garbage_collection_threshold":
            return replace(c, gc_threshold=_between(float(value[0])))
        if name == "per_process_memory_fraction":
            return replace(c, fraction=float(value[0]))
        if name == "large_segment_size_mb":
            return replace(c, large_segment=int(value[0]) * MIB)
        if name == "max_split_size_mb":
            return replace(c, max_split_size=int(value[0]) * MIB)
        if name == "max_non_split_rounding_mb":
            return replace(c, max_non_split_rounding=int(value[0]) * MIB)
    except (KeyError, ValueError, IndexError):
        raise _refused(name, f"{''.join(value)!r} is no value that PyTorch takes") from None
    if name == "backend" and value[0] != "native":
        raise _refused(name, "only the native backend is replayed")
    if name not in _IGNORED and name != "backend":
        raise _refused(name, "PyTorch 2.13 has no such setting")
    return replace(c, ignored=(*c.ignored, name))


def _between(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError
    return value


def _divisions(value: list[str]) -> tuple[int, ...]:
    """One number for all intervals, or ``size:divisions`` pairs of which the last may be ``>``."""
    if len(value) == 1:
        return (_power(value[0]),) * _INTERVALS
    out, last, first = [0] * _INTERVALS, 0, True
    for i in range(0, len(value), 4):
        bound, divisions = value[i], _power(value[i + 2])
        if bound == ">":
            out[last + 1 :] = [divisions] * (_INTERVALS - last - 1)
            continue
        last = min(_power(bound).bit_length() - 1, _INTERVALS - 1)
        if first:
            out[:last] = [divisions] * last
            first = False
        out[last] = divisions
    return tuple(out)


def _power(text: str) -> int:
    number = int(text)
    if number & (number - 1):
        raise ValueError
    return number


def _refused(name: str, why: str) -> JobError:
    return JobError(f"{name}: {why}", where="env.PYTORCH_CUDA_ALLOC_CONF", hint="see PyTorch's notes/cuda page")
