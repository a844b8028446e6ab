"""The model or its sequences split over several GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import data_parallel, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Variant, remedy
from oomkb.memory.job import Job
from oomkb.memory.ranks import model_parallel

_STATES: Final = ("weights", "gradients", "optimizer states", "master")
_PER_TOKEN: Final = ("logits", "activations", "attention", "recomputed")
_MACHINE: Final = 8
_MIN_CONTEXT: Final = 8192
"""Tokens of a sample from which passing keys and values around is worth it."""


def _doubled(now: int, most: int) -> Iterator[int]:
    size = now * 2
    while size <= most:
        yield size
        size *= 2


def _tensor_sizes(job: Job, context: Context, now: int, available: int) -> Iterator[int]:
    """Larger tensor-parallel sizes: they divide the GPUs and the attention heads, and key-value heads as well."""
    heads, kv_heads = (context.shape.dims.heads, context.shape.dims.kv_heads) if context.shape is not None else (0, 0)
    for size in _doubled(now, min(available, _MACHINE)):
        if available % size == 0 and (heads or 0) % size == 0 and (kv_heads or 0) % size == 0:
            yield size


@remedy("same-numbers", "training", reduces=(*_STATES, "logits", "activations", "recomputed"))
def tensor_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """Every matrix split over the GPUs of one machine. Shoeybi et al. 2019, "Megatron-LM"."""
    now = job.tp or 1
    if not context.has("tp") or ((job.sp or 1) > 1 and not context.has("sp.megatron")):
        return
    other = model_parallel(job) // now
    for size in _tensor_sizes(job, context, now, job.gpus or world_size(job) // (job.nodes or 1)):
        if world_size(job) % (size * other) == 0:
            yield Variant(fields={"tp": size}, effort=1.0)


@remedy("same-numbers", "training", reduces=_STATES)
def pipeline_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """Layers split into stages on different GPUs, kept busy by many micro-batches.

    Worth it only with several accumulation steps, or the pipeline stands idle most of the time. Narayanan et al. 2021.
    """
    now, world = job.pp or 1, world_size(job)
    layers = context.shape.layer_count if context.shape is not None else 0
    for size in _doubled(now, min(16, world)) if context.has("pp") else ():
        if world % (size * model_parallel(job) // now) == 0 and layers % size == 0:
            yield Variant(fields={"pp": size}, effort=1.2)


@remedy("same-numbers", "training", reduces=_PER_TOKEN)
def context_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """Ring attention: the whole forward pass of one sample split by tokens. Liu et al. 2023, "Ring Attention"."""
    now, world = job.cp or 1, world_size(job)
    if not context.has("cp") or job.attention == "eager" or (job.seq_len or 0) < _MIN_CONTEXT:
        return
    other = model_parallel(job) // now * (job.sp or 1 if not context.has("sp.megatron") else 1)
    for size in _doubled(now, min(16, world)):
        if world % (size * other) == 0:
            yield Variant(fields={"cp": size}, effort=1.0)


@remedy("same-numbers", "training", reduces=_PER_TOKEN)
def sequence_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """One sample's tokens split over several GPUs.

    Ulysses style (ms-swift, verl): each GPU of a group holds a part of the sequence and all heads change hands for
    attention; the size must divide the key-value heads. Jacobs et al. 2023. Megatron style: norms and dropouts split
    inside the tensor-parallel group.
    """
    now, world = job.sp or 1, world_size(job)
    if context.has("sp.megatron"):
        if (job.tp or 1) > 1 and now == 1:
            yield Variant(fields={"sp": job.tp}, effort=0.3)
    elif context.has("sp") and job.attention != "eager":
        kv_heads = context.shape.dims.kv_heads if context.shape is not None else 0
        for size in _doubled(now, min(8, world)):
            if world % (size * model_parallel(job)) == 0 and (kv_heads or 0) % size == 0:
                yield Variant(fields={"sp": size}, effort=0.8)


@remedy("same-numbers", "training", reduces=(*_STATES, "experts"))
def expert_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """The routed experts of a mixture-of-experts model split over the data-parallel ranks."""
    experts, replicas = context.shape.dims.experts if context.shape is not None else 0, data_parallel(job)
    for size in _doubled(job.ep or 1, min(replicas, experts, 64)) if context.has("ep") else ():
        if replicas % size == 0 and experts % size == 0:
            yield Variant(fields={"ep": size}, effort=1.0)


@remedy("same-numbers", "rl", reduces=("rollout", "engine", "kv"))
def rollout_tensor_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """The generation engine's weights split over more of the training GPUs."""
    rollout = job.rollout
    if rollout is not None and rollout.colocated is not False and context.has("rollout.tp"):
        machine = min(_MACHINE, job.gpus or world_size(job))
        for size in _tensor_sizes(job, context, rollout.tensor_parallel or 1, machine):
            yield Variant(fields={"rollout.tensor_parallel": size}, effort=0.6)


@remedy("same-numbers", "serving", reduces=("weights", "kv"))
def serving_tensor_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """Serve over more GPUs of the machine: weights and KV heads are split."""
    if context.has("serving.tp"):
        for size in _tensor_sizes(job, context, job.tp or 1, _machine(job, context)):
            yield Variant(fields={"tp": size, "world": max(size * (job.pp or 1), world_size(job))}, effort=0.8)


@remedy("same-numbers", "serving", reduces=("weights", "kv"), hardware=True)
def serving_more_gpus(job: Job, context: Context) -> Iterator[Variant]:
    """More GPUs in the serving machine, used by tensor parallelism."""
    for size in _tensor_sizes(job, context, job.tp or 1, _MACHINE) if context.has("serving.tp") else ():
        if size > _machine(job, context):
            fields = {"tp": size, "world": size * (job.pp or 1), "gpus": size, "dp": None}
            yield Variant(fields=fields, effort=5.0 + size / 2)


def _machine(job: Job, context: Context) -> int:
    return max(job.gpus or 1, world_size(job)) + context.spare_gpus
