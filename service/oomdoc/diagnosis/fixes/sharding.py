"""Model states split over data-parallel ranks: ZeRO and FSDP, their buffers, and the processes that they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import (
    Context,
    Variant,
    data_parallel,
    half_precision,
    is_serving,
    remedy,
    world_size,
)
from oomdoc.diagnosis.fixes.batch import PER_TOKEN
from oomdoc.evidence import say
from oomkb.frameworks import supports
from oomkb.memory.job import Job
from oomkb.memory.ranks import model_parallel

_STATES: Final = ("optimizer states", "gradients", "master", "weights")
_UNSHARDED: Final = (None, "none", "ddp")
_STAGES: Final = ("zero1", "zero2", "zero3")
# What each stage asks of a person: a launcher and a config file, then another number in it.
_NEW, _NEXT = 1.2, 0.4
_OWN_OPTIMIZER: Final = ("galore_adamw", "galore_adamw_8bit", "apollo_adamw", "lomo", "paged_adamw_8bit", "paged_adamw")
_BUCKET: Final = (5e7, 5e8)
"""Elements of a small bucket, and of DeepSpeed's own."""
_STAGE3: Final = {"stage3_prefetch_bucket_size": (1e7, 0.0), "stage3_max_live_parameters": (1e8, 0.0)}
_SHARDED: Final = ("zero2", "zero3", "fsdp", "fsdp2", "distributed-optimizer")
_MACHINE: Final = 8
_FACTORS: Final = (2, 4, 8)
_MAX_GPUS: Final = 512


@remedy("same-numbers", "training", reduces=_STATES)
def zero(job: Job, context: Context) -> Iterator[Variant]:
    """DeepSpeed ZeRO, one stage further: optimizer states (1), gradients (2), parameters (3) split over the ranks.

    With one process there is nothing to split over. ZeRO-3 refuses bitsandbytes' 4-bit weights and pure 16-bit training
    without masters. Rajbhandari et al. 2020, "ZeRO".
    """
    at = _STAGES.index(job.sharding) + 1 if job.sharding in _STAGES else 0
    if world_size(job) // model_parallel(job) < 2 or not context.has("zero"):
        return
    if not at and job.sharding not in (*_UNSHARDED, "data-parallel"):
        return
    if job.optimizer in _OWN_OPTIMIZER or job.method in ("galore", "apollo", "badam"):
        return
    for stage in _STAGES[at:]:
        if stage != "zero3" or not (job.quant not in (None, "none") or job.method == "qlora"):
            # The engine holds 16-bit weights and its own fp32 masters, split as the stage says.
            fields = {"sharding": stage, **half_precision(job, bf16=context.can("bf16"))}
            yield Variant(fields=fields, effort=_NEXT if at else _NEW)


@remedy("same-numbers", "training", reduces=("bucket", "buffer", "gather", "gathered", "communication"))
def buckets(job: Job, context: Context) -> Iterator[Variant]:
    """Smaller communication buckets and less prefetch: DeepSpeed's defaults (5e8 elements) hold gigabytes.

    Counts are elements, 2 bytes each, held twice where communication overlaps. DeepSpeed runtime/zero/config.py
    0.15-0.19.
    """
    if job.sharding not in _STAGES or not context.has("buckets"):
        return
    more = _STAGE3 if job.sharding == "zero3" else {"allgather_bucket_size": _BUCKET}
    sizes = {"reduce_bucket_size": _BUCKET, **more}.items()
    fields = {f"buckets.{name}": small for name, (small, own) in sizes if _elements(job, name, own) > small}
    if fields:
        yield Variant(fields=fields, effort=0.6)


def _elements(job: Job, name: str, own: float) -> float:
    # "auto" is resolved by the trainer to hidden x hidden, which is small already.
    size: Any = job.buckets.get(name, own)
    return 0.0 if isinstance(size, str) else float(size)


@remedy("same-numbers", "training", reduces=(*_STATES, "gathered weights", "saved weights"))
def fsdp(job: Job, context: Context) -> Iterator[Variant]:
    """Fully sharded data parallel: weights, gradients and optimizer states split, one layer gathered at a time.

    Zhao et al. 2023, "PyTorch FSDP". Needs several ranks; bitsandbytes bases only with a matching storage dtype, so not
    proposed there.
    """
    if world_size(job) // model_parallel(job) < 2 or not context.has("fsdp"):
        return
    if job.quant not in (None, "none") or job.method == "qlora" or job.offload:
        return
    if job.optimizer not in (None, "adamw", "sgd", "sgd_momentum", "lion"):
        return
    if job.sharding in (*_UNSHARDED, "data-parallel", "shard-grad-op", "hsdp"):
        yield Variant(fields={"sharding": "fsdp2" if context.has("fsdp2") else "fsdp"}, effort=1.3)
    elif job.sharding in ("fsdp", "fsdp2") and job.reshard_after_forward is False:
        yield Variant(fields={"reshard_after_forward": True}, effort=0.4)


def launch_line(context: Context, gpus: int) -> str:
    """How the framework is made to start ``gpus`` processes on a machine."""
    return context.line("launch", "torchrun --nproc_per_node {gpus} ...").replace("{gpus}", str(gpus))


@remedy("same-numbers", "training", reduces=_STATES)
def all_processes(job: Job, context: Context) -> Iterator[Variant]:
    """One process for every GPU: ZeRO, FSDP and data parallelism split over processes, and one process splits nothing.

    ``NPROC_PER_NODE=1`` or a plain ``python`` leaves the other GPUs of the machine idle; those of a rollout engine,
    colocated or separate, are not idle.
    """
    machine = (job.gpus or 0) + context.spare_gpus
    world, nodes = world_size(job), job.nodes or 1
    if machine * nodes <= world or world >= 2 * machine * nodes or context.framework == "unsloth":
        return
    if job.objective == "inference" or job.get("rollout.colocated") is False:
        return
    notes = (say("fixes.all-processes.how", line=launch_line(context, machine)),)
    fields: dict[str, object] = {"world": machine * nodes, "gpus": machine, "dp": None}
    yield Variant(fields=fields, effort=0.5, notes=notes)
    # Processes alone replicate the model: with sharding they share it.
    for sharding in ("zero2", "zero3"):
        plain = job.sharding in _UNSHARDED or (job.sharding in ("zero1", "zero2") and sharding == "zero3")
        if plain and _takes_zero(job, context):
            yield Variant(fields={**fields, "sharding": sharding}, effort=1.2, notes=notes)


def _takes_zero(job: Job, context: Context) -> bool:
    return context.has("zero") and job.quant in (None, "none") and job.optimizer in (None, "adamw")


@remedy("same-numbers", "training", reduces=_STATES, hardware=True)
def more_gpus(job: Job, context: Context) -> Iterator[Variant]:
    """More GPUs of the same kind, with the sharding that makes use of them: replication alone frees nothing."""
    if is_serving(job) or context.framework == "unsloth":
        return
    world, in_machine, nodes = world_size(job), job.gpus or world_size(job), job.nodes or 1
    for rank, factor in enumerate(_FACTORS):
        total = world * factor
        if total > _MAX_GPUS:
            break
        gpus = in_machine * factor if in_machine * factor <= _MACHINE and nodes == 1 else in_machine
        fields: dict[str, object] = {"world": total, "dp": None, "gpus": gpus, "nodes": max(1, total // gpus)}
        note = say("fixes.more-gpus.how", count=total, before=world, gpu=job.gpu or "GPU")
        if job.sharding not in _SHARDED:
            if (chosen := _sharding_of_all(job, context)) is None:
                return
            fields["sharding"], name = chosen
            note = say("fixes.more-gpus.sharded.how", **note.values, sharding=name)
        yield Variant(fields=fields, effort=6.0 + 2.0 * rank, notes=(note,))


def _sharding_of_all(job: Job, context: Context) -> tuple[str, str] | None:
    """The sharding of all states that the framework has, as a job says it and as people do."""
    if job.quant not in (None, "none") or job.optimizer not in (None, "adamw"):
        return None
    features = (("zero", "zero3", "ZeRO-3"), ("fsdp2", "fsdp2", "FSDP2"), ("fsdp", "fsdp", "FSDP"))
    offered = (one for one in features if context.has(one[0]) and supports(context.framework, "sharding", one[1]))
    return next(((value, name) for _, value, name in offered), None)


@remedy("same-numbers", "rl", reduces=("rollout", "engine", "kv"))
def rollout_separate(job: Job, context: Context) -> Iterator[Variant]:
    """Generation on GPUs of its own: the engine and the trainer stop competing, the trainer has fewer ranks.

    One of the machine's GPUs (or a tensor-parallel group) goes to the engine, the rest train.
    """
    rollout = job.rollout
    if rollout is None or rollout.colocated is False or not context.has("rollout.separate"):
        return
    engine = rollout.tensor_parallel or 1
    rest = max(job.gpus or 0, world_size(job)) + context.spare_gpus - engine
    if (job.nodes or 1) > 1 or rest < 1:
        return
    notes = (say("fixes.rollout-separate.how", train_gpus=rest, engine_gpus=engine),)
    fields = {"rollout.colocated": False, "world": rest, "gpus": rest, "dp": None}
    yield Variant(fields=fields, effort=1.2, notes=notes)
    # Several trainers where there was one: with ZeRO-3 they share the model.
    if rest > 1 and job.sharding in (*_UNSHARDED, "zero1", "zero2") and _takes_zero(job, context):
        yield Variant(fields={**fields, "sharding": "zero3"}, effort=1.5, notes=notes)


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


@remedy("same-numbers", "training", reduces=PER_TOKEN)
def context_parallel(job: Job, context: Context) -> Iterator[Variant]:
    """Ring attention: the whole forward pass of one sample split by tokens. Liu et al. 2023, "Ring Attention"."""
    now, world = job.cp or 1, world_size(job)
    if not context.has("cp") or job.attention == "eager" or (job.seq_len or 0) < _MIN_CONTEXT:
        return
    other = model_parallel(job) // now * (job.sp or 1 if not context.has("sp.megatron") else 1)
    for size in _doubled(now, min(16, world)):
        if world % (size * other) == 0:
            yield Variant(fields={"cp": size}, effort=1.0)


@remedy("same-numbers", "training", reduces=PER_TOKEN)
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
            fields = {"tp": size, "world": max(size * (job.pp or 1), world_size(job)), **share_lowered(job)}
            yield Variant(fields=fields, effort=0.8)


@remedy("same-numbers", "serving", reduces=("weights", "kv"), hardware=True)
def serving_more_gpus(job: Job, context: Context) -> Iterator[Variant]:
    """More GPUs in the serving machine, used by tensor parallelism."""
    for size in _tensor_sizes(job, context, job.tp or 1, _MACHINE) if context.has("serving.tp") else ():
        if size > _machine(job, context):
            fields = {"tp": size, "world": size * (job.pp or 1), "gpus": size, "dp": None, **share_lowered(job)}
            yield Variant(fields=fields, effort=5.0 + size / 2)


_USUAL_SHARE: Final = 0.9
_RAISED_SHARE: Final = 0.95
"""The share of a card that vLLM takes by default (through 0.19), and one that somebody raised for want of room."""


def share_lowered(job: Job) -> dict[str, float]:
    """A share that was raised to make room on fewer cards goes back: graphs and context lie outside it."""
    share = job.get("serving.gpu_memory_utilization")
    return {"serving.gpu_memory_utilization": _USUAL_SHARE} if share is not None and share >= _RAISED_SHARE else {}


def _machine(job: Job, context: Context) -> int:
    return max(job.gpus or 1, world_size(job)) + context.spare_gpus
