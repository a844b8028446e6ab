"""What offloading puts into host memory: DeepSpeed's buffers, FSDP's pinned parameters, and what pinning adds to both.

Followed storage by storage in DeepSpeed's own engines (0.19.8; ``bench/trace_host.py``,
``tests/kb/memory/data/offload.jsonl``). torch's allocator of host memory rounds pinned blocks up to powers of two, and
keeps those that are freed (``aten/src/ATen/core/CachingHostAllocator.h``, torch 2.0 to 2.13).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from oomkb.errors import Note, note
from oomkb.memory.job import Job
from oomkb.memory.ranks import FSDP, FSDP1
from oomkb.memory.releases import DEEPSPEED, MOVES_OPTIMIZER, MOVES_STATES
from oomkb.memory.shape import ModelShape

if TYPE_CHECKING:
    from oomkb.memory.setting import Setting

_EARLY: Final = ("zero1", "zero2")
_SWAP_BUFFERS: Final = (5, 1e8, 4)
"""Buffers for parameters, elements of one, and buffers for the optimizer, each of a sub-group (DeepSpeed's docs)."""


_STATES: Final = frozenset({"optimizer", "param"})
OPTIMIZER_ALONE: Final[Note] = note("estimate.fsdp-offloads-all")


def offloaded(job: Job, sharding: str) -> frozenset[str]:
    """What is offloaded: ``offload_param`` has a meaning in stage 3 alone (DeepSpeed's ``zero/offload_config.py``).

    FSDP has one switch, which takes parameters, gradients and, as the step runs there, the optimizer's states.
    """
    kinds = frozenset(job.offload or ())
    if by_fsdp(job, sharding):
        return kinds | _STATES
    return kinds - {"param"} if sharding in _EARLY else kinds


def by_fsdp(job: Job, sharding: str) -> bool:
    """Whether FSDP itself offloads: ``CPUOffload`` (torch 2.13, ``fsdp/api.py``), ``CPUOffloadPolicy``."""
    kinds = _STATES.intersection(job.offload or ())
    if not kinds or sharding not in FSDP or job.runs_on(*MOVES_STATES):
        return False
    return "param" in kinds or not job.runs_on(*MOVES_OPTIMIZER)


def asks_optimizer_alone(job: Job, sharding: str) -> bool:
    """Whether the optimizer alone is to be offloaded, for which FSDP has no option."""
    return by_fsdp(job, sharding) and "param" not in (job.offload or ())


def joins_whole(job: Job, sharding: str) -> bool:
    """Whether FSDP adds up micro-batches without sharding their gradients: ``no_sync`` until the last of them.

    FSDP1 that offloads can do nothing else (torch 2.13, ``fully_sharded_data_parallel.py``, "Limitations").
    """
    if (job.grad_accum or 1) < 2 or sharding not in FSDP:
        return False
    return sharding in FSDP1 and by_fsdp(job, sharding)


def offloaded_share(job: Job) -> float:
    """The part of the optimizer states that is offloaded, where they are: all, unless Megatron's
    ``optimizer_offload_fraction`` says otherwise (core 0.19, ``cpu_offloading/hybrid_optimizer.py``).
    """
    stated = job.extra.get("optimizer_offload_fraction")
    return float(stated) if isinstance(stated, int | float) and 0 < stated <= 1 else 1.0


def loads_whole(s: Setting) -> bool:
    """Whether the model moves to the card before it is cut: what ``zero.Init`` has not made (``runtime/engine.py``)."""
    return s.sharding == "zero3" and s.job.extra.get("zero3_init_flag") is False


def keeps_gathered(job: Job) -> bool:
    """Whether torch's own linear layers run under stage 3: what they save for backward is the gathered weight.

    ``memory_efficient_linear`` replaces them (DeepSpeed ``zero/linear.py``); before 0.19.6 in models that are made
    inside ``zero.Init`` alone (its pull request 8189).
    """
    engine, apart = job.release(DEEPSPEED), job.extra.get("zero3_init_flag") is False
    early = bool(engine) and engine < (0, 19, 6)
    return job.sharding == "zero3" and (job.extra.get("memory_efficient_linear") is False or (apart and early))


def pins(job: Job, sharding: str) -> bool | None:
    """Whether offloaded buffers are pinned: ``pin_memory``, on by default since DeepSpeed 0.19.5.

    Stages 1 and 2 pinned whatever was stated before 0.18.3 (its pull request 7689). ``None`` where it is not known.
    """
    stated, engine = job.extra.get("pin_memory"), job.release(DEEPSPEED)
    if sharding in _EARLY and engine and engine < (0, 18, 3):
        return True
    return stated if isinstance(stated, bool) else True if engine >= (0, 19, 5) else None


def flattened_bytes(s: Setting, trained: float) -> float:
    """Host memory of one machine while stages 1 and 2 are made: every rank's weights, apart and as one flat buffer.

    Before 0.18.6 on the host, since then where the card has no room for it (DeepSpeed's pull request 7828).
    """
    engine = s.job.release(DEEPSPEED)
    made = s.sharding in _EARLY and engine and engine < (0, 18, 6)
    return 2.0 * trained * s.held_bytes * s.gpus_per_node if made else 0.0


def offloaded_bytes(
    s: Setting, shape: ModelShape, *, states: float, weights: float, partition: float
) -> tuple[float, float]:
    """Host memory of one machine for what is offloaded: what its tensors take, and the most with pinned blocks.

    With NVMe only the buffers that it is swapped through.

    :param states: masters, moments and gradients of a rank. :param weights: of a rank. :param partition: its trained
        elements.
    """
    if s.job.nvme_offload:
        buffers, elements, swaps = _SWAP_BUFFERS
        moved = 4.0 * swaps * min(partition, s.bucket("sub_group_size", 1e9)) if states else 0.0
        found = (moved + (2.0 * buffers * elements if weights else 0.0)) * s.gpus_per_node
        return found, found
    needs, more = states + weights, 0.0
    if s.deepspeed:
        own, more = _engine_buffers(s, shape, partition) if states else (0.0, 0.0)
        needs += own
        more += _engine_weights(s, shape, weights) if weights else 0.0
    elif s.sharding in FSDP and weights and s.pins is not False:
        # What is sharded together and its gradient, each pinned: of units (``_flat_param.py``, 1260) or of parameters
        # (``_fsdp_param.py``, 315; ATen's ``_to_copy``, ``pin_out``).
        split, pieces = s.shards * s.tp * s.pp, _units(shape) if s.sharding in FSDP1 else _parameters(shape)
        more = 2 * sum(_beyond(n / split * s.param_bytes) * count for n, count in pieces)
    elif s.megatron and states and s.pins is not False:
        # Gradients are pinned, and 16-bit weights were before they were widened (megatron-core 0.16.1,
        # ``optimizer/cpu_offloading/hybrid_optimizer.py``, 110 and 274).
        split = s.shards * s.tp * s.pp
        more = sum(
            (_beyond(4 * n / split) + 2 * n / split + _beyond(2 * n / split)) * count for n, count in _parameters(shape)
        )
    return needs * s.gpus_per_node, (needs + more) * s.gpus_per_node


def _engine_buffers(s: Setting, shape: ModelShape, partition: float) -> tuple[float, float]:
    """DeepSpeed's own buffers beside states in fp32, and what pinning adds to both: 18 bytes a parameter in all.

    Stage 3 adds gradients up in ``grad_partitions_flat_buffer``, in the model's dtype unless ``grad_accum_dtype`` says
    otherwise (0.19.8, ``zero/stage3.py``, 791), beside fp32 ones of a sub-group (1338). Stages 1 and 2 hold weights on
    their way back (``stage_1_and_2.py``, 566), a gradient of the largest parameter's size (653), and with several
    micro-batches the gradients added up, each apart (1824). The 24 and 27 bytes of
    ``estimate_zero*_model_states_mem_needs`` are 16 and 18 times 1.5.
    """
    low, whole = partition * s.held_bytes, 4.0 * partition
    if s.sharding == "zero3":
        own = partition * (s.accum_bytes or s.held_bytes)
        group = 4.0 * s.bucket("sub_group_size", 1e9)
        more = _beyond(own) + whole // group * _beyond(group) + _beyond(whole % group)
        return own, more if s.pins is not False else 0.0
    sizes = list(_parameters(shape))
    largest = max(n for n, _ in sizes) / (s.tp * s.pp) * s.held_bytes if not s.adapters else 0.0
    own, more = low + largest, _beyond(low) + 2 * _beyond(whole) + _beyond(largest)
    if s.accum > 1:
        own += low
        more += sum(_beyond(n * s.held_bytes) * count for n, count in sizes) / s.shards if not s.adapters else 0.0
    return own, more if s.pins is not False else 0.0


def _engine_weights(s: Setting, shape: ModelShape, weights: float) -> float:
    """What stage 3 takes beyond its offloaded weights.

    Trained ones lie in a flat buffer that is pinned whatever is stated (``zero/stage3.py``, 906); those that were
    pinned one by one before (``partition_parameters.py``, 1843) are moved into it, and their blocks stay.
    """
    split, each = s.shards * s.tp * s.pp, s.held_bytes
    alone = sum(2.0 ** math.ceil(math.log2(n / split * each)) * count for n, count in _parameters(shape))
    if s.adapters:
        return max(0.0, alone - weights) if s.pins is not False else 0.0
    return _beyond(weights) + (alone if s.pins is not False else 0.0)


def _units(shape: ModelShape) -> Iterator[tuple[float, int]]:
    """Elements of the flat parameters of a transformer-based wrapping, and how many there are."""
    yield from ((layer.params, layer.count) for layer in shape.layers)
    yield shape.text_params - shape.layer_params, 1


def _parameters(shape: ModelShape) -> Iterator[tuple[float, int]]:
    """Elements of the parameters that are matrices, and how many there are; all experts of a layer may be one."""
    for layer in shape.layers:
        for m in layer.linears:
            one = m.inputs * m.outputs
            yield (one, m.count * layer.count) if m.module else (one * m.count, layer.count)
    tables = shape.dims.vocab * shape.dims.embed_width
    yield tables, 1 if shape.dims.tied else 2


def _beyond(size: float) -> float:
    """What a pinned block takes beyond the size that is asked for."""
    return 2.0 ** math.ceil(math.log2(size)) - size if size >= 1 else 0.0
