"""What lies between the tensors' bytes and what ``nvidia-smi`` shows, and whether a run fits.

* CUDA context with PyTorch's kernels loaded lazily, per GPU generation: measured figures of public tools
  (T4 141 MiB, L4 226 MiB, A100 501 MiB) and of driver reports; the others interpolated by number of SMs.
* cuBLAS keeps a workspace inside the caching allocator: 8 MiB before Hopper, 32 MiB from Hopper on
  (``CUBLAS_WORKSPACE_CONFIG`` defaults in torch 2.x).
* NCCL's channels and buffers per communicator.
* The caching allocator's own reserve: measured share of the peak on published runs that report both meters.

How sure the figures are is in :mod:`oomkb.memory.intervals`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.device import Device
from oomkb.memory.estimate import Phase
from oomkb.memory.ranks import FSDP1
from oomkb.memory.setting import Setting
from oomkb.units import MIB

CONTEXT_MIB: Final[Mapping[str, float]] = {
    "pascal": 250,
    "volta": 310,
    "turing": 160,
    "ampere": 480,
    "ada": 400,
    "hopper": 560,
    "blackwell": 620,
}
# What the caching allocator holds beside the tensors of the fullest instant. Blocks of one shape do not serve
# another: the states of the optimizer are made in the first step, in the middle of blocks that activations had left,
# so that what a phase needs is not given by what another one freed ("shapes": share of what all phases need of
# parameters' shapes and of activations' shapes beyond the fullest instant, as far as such states are made). Logits
# come in few blocks, the largest of all, in two dtypes ("logits"); activations in many of one size ("activations").
# FSDP1 records streams, so that gathered units are given back late ("gathered"). Least squares over the 34 published
# runs that state both meters or that reserve less than 88 % of the card (foundation-model-stack/fms-acceleration
# benchmark tables, AnswerDotAI/fsdp_qlora): 11 % of allocated in the root mean square, against 30 % with nothing
# added.
FRAGMENTATION: Final[Mapping[str, float]] = {"shapes": 0.73, "logits": 0.53, "activations": 0.135, "gathered": 1.2}
COMPILED: Final = 0.5
"""Share of that for a compiled step, which asks for fewer, larger blocks (torchtitan's tables, both ways)."""
EXPANDABLE: Final = 0.15
"""Share of that with expandable segments: a segment grows where a block of another size is wanted."""
EMPTIED: Final = 0.12
"""Share of that where the cache is given back in every step (``torch_empty_cache_steps``; PEFT's method comparison)."""
_ACTIVATIONS: Final = frozenset({"activations", "recomputed layer", "attention scores", "vision tower"})
_LATE: Final = FSDP1 | {"zero3"}
# Batches of changing lengths leave blocks of logits behind that no later batch can use: in ms-swift 1's table (1.8 to
# 72 billion parameters, docs/source_en/LLM/Benchmark.md) 2.15 times the logits at 2048 tokens, half that at 8192. In 51
# runs of 19 other sources the limit, which few batches reach, is as much on the other side: with such blocks they were
# off by 36 % in the mean, without by 24 %.
SWIFT_AT_2048: Final = 2.15
_DEFAULT_CONTEXT_MIB: Final = 450.0
_EAGER_CONTEXT_MIB: Final = 1343.0
"""With every kernel loaded at once, as before torch 1.13 (``torch/cuda/__init__.py`` asks for lazy loading since): of a
V100 (transformers' ``model_memory_anatomy.md``)."""
_NCCL_MIB: Final = 420.0


@dataclass(frozen=True, slots=True)
class Meters:
    """The three meters' figures in bytes."""

    allocated: float
    reserved: float
    process: float
    needed: float
    """What the process cannot do without: cached blocks are given back before the allocator fails."""
    evicted: float = 0.0
    """Of paged optimizer states, what has no room beside the rest and lies in host memory."""


def meters(
    s: Setting,
    phases: Mapping[str, Phase],
    base: float,
    device: Device | None,
    *,
    capacity: float | None,
    paged: float = 0.0,
    apart: float = 0.0,
) -> Meters:
    """Reserved and process memory around the fullest phase; ``base`` is what stays allocated through the step,
    ``apart`` what other streams' pools hold.

    Fragmentation grows with what comes and goes, not with what stays.
    """
    allocated = max(phase.total_bytes for phase in phases.values())
    moving = max(0.0, allocated - base)
    cached = _cached(s, phases, allocated)
    if s.dynamic and "swift 1." in s.framework:
        logits = max(phase.terms_bytes.get("logits and loss", 0.0) for phase in phases.values())
        cached += SWIFT_AT_2048 * math.sqrt(2048 / s.seq) * min(moving, logits)
    reserved = allocated + cached + apart + 0.005 * base + 28.1 * MIB
    outside = outside_bytes(s, device)
    needed = allocated * 1.01 + 0.04 * moving + outside
    if capacity is None:
        needed += paged  # nothing says that they would not have room
    else:
        # Before it fails, the allocator returns blocks that it only caches.
        reserved = min(reserved, max(needed, 0.99 * capacity) - outside)
    resident = paged if capacity is None else min(paged, max(0.0, capacity - reserved - outside))
    return Meters(allocated, reserved, reserved + outside + resident, needed, paged - resident)


def outside_bytes(s: Setting, device: Device | None) -> float:
    """What a process holds outside the caching allocator: CUDA context and NCCL's buffers."""
    context = CONTEXT_MIB.get(device.generation, _DEFAULT_CONTEXT_MIB) if device else _DEFAULT_CONTEXT_MIB
    if s.torch and s.torch < (1, 13):
        context = _EAGER_CONTEXT_MIB
    communication = _NCCL_MIB if s.world > 1 and s.sharding != "none" else 0.0
    return (context + communication) * MIB


def _cached(s: Setting, phases: Mapping[str, Phase], allocated: float) -> float:
    """What the allocator holds beside the tensors where every step asks for the same sizes (``FRAGMENTATION``)."""
    held = [phase.terms_bytes for phase in phases.values()]
    heads = [terms.get("logits and loss", 0.0) for terms in held]
    parts = [sum([size for term, size in terms.items() if term in _ACTIVATIONS]) for terms in held]
    moving = [head + part for head, part in zip(heads, parts, strict=True)]
    made = max([0.0, *[terms.get("optimizer states", 0.0) for terms in held]])
    gathered = max([0.0, *[p.terms_bytes.get("gathered weights", 0.0) for n, p in phases.items() if n != "save"]])
    fluid, logits = max(0.0, *moving), max(0.0, *heads)
    solid = max([0.0, *[phase.total_bytes - each for phase, each in zip(phases.values(), moving, strict=True)]])
    share = FRAGMENTATION
    one_dtype = s.upcast.startswith("script") and (not s.autocast or s.upcast.endswith(" outside"))
    found = share["shapes"] * min(made, max(0.0, fluid + solid - allocated))
    found += 0.0 if one_dtype else share["logits"] * logits
    found += share["activations"] * max(0.0, fluid - logits)
    found *= (COMPILED if s.compile else 1.0) * (EXPANDABLE if s.expandable else EMPTIED if s.emptied else 1.0)
    return found + (share["gathered"] * gathered if s.sharding in _LATE and not s.expandable else 0.0)


def length_dependent(phase: Phase) -> float:
    """Bytes of a phase that follow the number of tokens."""
    return sum(size for term, size in phase.terms_bytes.items() if term in _ACTIVATIONS or term == "logits and loss")


def fits_probability(needed: float, sigma: float, capacity: float) -> float:
    """Chance that what the process needs stays within ``capacity``: log-normal around ``needed``."""
    if needed <= 0:
        return 1.0
    return round(normal(math.log(capacity / needed) / sigma), 4)


def normal(z: float) -> float:
    """The probability that a standard normal variable stays below ``z``."""
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))
