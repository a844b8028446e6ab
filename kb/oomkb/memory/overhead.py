"""What lies between the tensors' bytes and what ``nvidia-smi`` shows, and how sure the figures are.

* CUDA context with PyTorch's kernels loaded lazily, per GPU generation: measured figures of public tools
  (T4 141 MiB, L4 226 MiB, A100 501 MiB) and of driver reports; the others interpolated by number of SMs.
* cuBLAS keeps a workspace inside the caching allocator: 8 MiB before Hopper, 32 MiB from Hopper on
  (``CUBLAS_WORKSPACE_CONFIG`` defaults in torch 2.x).
* NCCL's channels and buffers per communicator.
* The caching allocator's own reserve: measured share of the peak on published runs that report both meters.

Intervals are split-conformal: the 90 % quantiles of log(measured / estimated) over published runs (``QUANTILES``),
wider where the configuration is not complete or the model's family is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oomkb.memory.device import Device
from oomkb.memory.estimate import Interval
from oomkb.memory.setting import Setting
from oomkb.units import MIB

__all__ = ["Meters", "fits_probability", "interval", "meters", "needed_sigma"]

CONTEXT_MIB: Final[Mapping[str, float]] = {
    "pascal": 250,
    "volta": 310,
    "turing": 160,
    "ampere": 480,
    "ada": 400,
    "hopper": 560,
    "blackwell": 620,
}
# Share of what comes and goes in a step that the caching allocator holds besides: medians over published runs that
# report both meters (foundation-model-stack/fms-acceleration benchmark tables, AnswerDotAI/fsdp_qlora, torchtitan).
FRAGMENTATION: Final[Mapping[str, float]] = {
    "fsdp": 0.45,
    "hsdp": 0.45,
    "shard-grad-op": 0.45,
    "zero3": 0.35,
    "fsdp2": 0.2,
}
# Batches padded to their own longest sample leave blocks that no later batch can use, the more of them the more
# lengths lie below the limit. Reserved over allocated in ms-swift's table of lengths (docs/source_en/LLM/Benchmark.md,
# one to 72 billion parameters, 512 to 8192 tokens): 2.8 at 1024, 2.4 at 2048, 1.7 at 4096, 1.2 at 8192.
DYNAMIC_AT_2048: Final = 2.4
DYNAMIC_RANGE: Final = (1.2, 2.8)
_DEFAULT_CONTEXT_MIB: Final = 450.0
_NCCL_MIB: Final = 420.0
_CUBLAS_MIB: Final = 8.1
# (low, high) of log(measured / estimated): 5 % and 95 % quantiles over 134 published figures: 103 of the 76 runs that
# the model was developed on, and 31 of runs gathered afterwards (bench/measured/unseen.jsonl), which widened the lower
# side of "allocated" (compiled steps keep less than they play). "serving": tests/kb/memory/data/serving_starts.jsonl.
QUANTILES: Final[Mapping[str, tuple[float, float]]] = {
    "exact": (-0.04, 0.05),
    "allocated": (-0.225, 0.17),
    "reserved": (-0.145, 0.15),
    "reserved, changing lengths": (-0.25, 0.45),
    "process": (-0.11, 0.30),
    "serving": (-0.04, 0.04),
}
# What decides whether a run fits is not what it caches. The spread of log(measured / estimated) of the tensors' bytes
# over the 38 published runs that state them: 0.047 for the 13 that nothing is doubted about, 0.081 for all (computed
# over published peaks, 2026-11). Doubts widen it below.
NEEDED_SIGMA: Final = 0.06


@dataclass(frozen=True, slots=True)
class Meters:
    """The three meters' figures in bytes."""

    allocated: float
    reserved: float
    process: float
    needed: float
    """What the process cannot do without: cached blocks are given back before the allocator fails."""


def meters(
    s: Setting, allocated: float, base: float, device: Device | None, *, capacity: float | None, paged: float = 0.0
) -> Meters:
    """Reserved and process memory around ``allocated``; ``base`` is what stays allocated through the step.

    Fragmentation grows with what comes and goes, not with what stays.
    """
    moving = max(0.0, allocated - base)
    share = 0.04 if s.expandable else FRAGMENTATION.get(s.sharding, _changing(s.seq) if s.dynamic else 0.18)
    if s.compile:
        share *= 0.5  # a compiled step asks for fewer, larger blocks
    reserved = allocated + share * moving + 0.005 * base + (_CUBLAS_MIB + 20) * MIB
    context = CONTEXT_MIB.get(device.generation, _DEFAULT_CONTEXT_MIB) if device else _DEFAULT_CONTEXT_MIB
    communication = _NCCL_MIB if s.world > 1 and s.sharding != "none" else 0.0
    outside = (context + communication) * MIB
    needed = allocated * 1.01 + 0.04 * moving + outside
    if capacity is not None and needed < capacity:
        # Before it fails, the allocator returns blocks that it only caches.
        reserved = min(reserved, max(needed, 0.99 * capacity) - outside)
    return Meters(allocated, reserved, reserved + outside + paged, needed)


def _changing(seq: int) -> float:
    low, high = DYNAMIC_RANGE
    return min(high, max(low, DYNAMIC_AT_2048 * math.sqrt(2048 / seq)))


def interval(meter: str, value: float, *, complete: bool, known: bool, most: float | None = None) -> Interval:
    """The 90 % interval of one meter; ``most``: what the card holds, which no figure that fits it can exceed."""
    low, high = QUANTILES[meter]
    wide = (1.0 if complete else 1.35) * (1.0 if known else 1.5)
    top = value * math.exp(high * wide)
    return Interval(value * math.exp(low * wide), top if most is None or value > most else min(top, most))


def needed_sigma(*, complete: bool, known: bool, doubted: bool) -> float:
    """Relative uncertainty of what a process cannot do without."""
    return NEEDED_SIGMA * (1.0 if complete else 1.6) * (1.0 if known else 1.5) * (1.5 if doubted else 1.0)


def fits_probability(needed: float, sigma: float, capacity: float) -> float:
    """Chance that what the process needs stays within ``capacity``: log-normal around ``needed``."""
    if needed <= 0:
        return 1.0
    z = math.log(capacity / needed) / sigma
    return round(0.5 * (1 + math.erf(z / math.sqrt(2))), 4)
