"""How the ranks of a job are laid out over its kinds of parallelism, and what cannot be laid out."""

from __future__ import annotations

import math
from typing import Final

from oomkb.errors import JobError, note
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape

FSDP1: Final = frozenset({"fsdp", "hsdp", "shard-grad-op"})
FSDP: Final = FSDP1 | {"fsdp2"}
GATHERED: Final = FSDP | {"zero3"}
"""Weights are sharded, and gathered where they are used."""


def model_parallel(job: Job) -> int:
    """GPUs that together hold one replica's forward pass: tensor x pipeline x context parallel."""
    return (job.tp or 1) * (job.pp or 1) * (job.cp or 1)


def ranks_needed(job: Job) -> dict[str, int]:
    """Products of parallel sizes, each of which has to divide the ranks in all.

    A sequence is split over GPUs of their own (Ulysses, rings) or inside the tensor-parallel group (Megatron, of the
    same size); experts are split over the ranks of one pipeline stage, whatever else these hold.
    """
    own = 1 if job.sp in (None, job.tp) else job.sp
    out = {"tp x pp x cp": model_parallel(job)}
    if replicated(job):
        out["dp x tp x pp"] = (job.dp or 1) * model_parallel(job)
    if own and own > 1:
        out["tp x pp x cp x sp"] = model_parallel(job) * own
    if (job.ep or 1) > 1:
        out["pp x ep"] = (job.pp or 1) * (job.ep or 1)
    return out


def ranks(job: Job, shape: ModelShape) -> tuple[int, int, int, int, int, int, int, int]:
    """(world, dp, tp, pp, cp, sp, ep, GPUs of one machine).

    :raises JobError: with the field and what would be valid.
    """
    tp, pp, cp, sp, ep = (job.tp or 1), (job.pp or 1), (job.cp or 1), (job.sp or 1), (job.ep or 1)
    d = shape.dims
    if d.heads % tp and shape.known:  # the heads of a shape made from a size are a guess
        valid = ", ".join(str(n) for n in range(1, min(d.heads, 64) + 1) if d.heads % n == 0)
        raise JobError(
            f"{tp} does not divide the model's {d.heads} attention heads",
            where="tp",
            hint=f"one of {valid}",
            note=note("job.tp-heads", tp=tp, heads=d.heads, valid=valid),
        )
    if pp > d.layers:
        raise JobError(
            f"{pp} stages for {d.layers} layers",
            where="pp",
            hint=f"at most {d.layers}",
            note=note("job.pp-layers", pp=pp, layers=d.layers),
        )
    if ep > 1 and d.experts and d.experts % ep:
        raise JobError(
            f"{ep} does not divide the model's {d.experts} experts",
            where="ep",
            hint="a divisor of the expert count",
            note=note("job.ep-experts", ep=ep, experts=d.experts),
        )
    gpus = (job.gpus or 0) * (job.nodes or 1)
    world = job.world or gpus or (job.dp or 1) * model_parallel(job)
    if job.objective == "inference" and (job.dp is None or "dp" in job.assumed):
        replica = model_parallel(job)
        world = max(replica, world - world % replica)  # of three cards a server leaves one idle
    for sizes, split in ranks_needed(job).items():
        if world % split:
            raise JobError(
                f"{sizes} = {split} does not divide {world} ranks",
                where="world",
                hint=f"a multiple of {split}",
                note=note("job.world-split", sizes=sizes.replace("x", "×"), split=split, world=world),
            )
    dp = job.dp or world // model_parallel(job)
    per_node = job.gpus or (min(world, 8) if not job.nodes else max(1, world // job.nodes))
    return world, dp, tp, pp, cp, sp, ep, per_node


def stated_count(job: Job, *names: str) -> int | None:
    """A size among the keys a job document does not name, under any of its spellings."""
    for name in names:
        value = job.extra.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def cards_needed(job: Job) -> int:
    """The fewest cards that the parallel sizes of a model can be laid out on."""
    return math.lcm(*ranks_needed(job).values())


def replicated(job: Job) -> bool:
    """Whether an engine was told to start ``dp`` copies, each on cards of its own."""
    return job.objective == "inference" and (job.dp or 1) > 1 and "dp" not in job.assumed and not attention_dp(job)


def attention_dp(job: Job) -> int:
    """Parts of a tensor-parallel group with attention of their own; 0 where attention is split like all else.

    SGLang 0.5 ``layers/dp_attention.py``: ``attn_tp_size = tp_size // dp_size``. TensorRT-LLM's ``enable_attention_dp``
    has as many parts as ranks.
    """
    if not job.get("serving.attention_dp"):
        return 0
    return math.gcd(job.tp or 1, job.dp if job.dp and "dp" not in job.assumed else job.tp or 1)


def expert_split(job: Job, tp: int, ep: int, *, cuts: bool) -> int:
    """Over how many cards each routed expert is cut.

    An engine cuts them over what ``ep`` leaves of its tensor-parallel group.

    :param cuts: whether experts are cut over tensor parallelism too where nothing is said, as Megatron-LM does
        (``expert_tensor_parallel_size``; 1 in Megatron-SWIFT, ms-swift 4.6 command-line parameters); others keep them
        whole under ep.
    """
    stated = stated_count(job, "etp", "expert_tensor_parallel_size", "expert_tensor_parallel")
    if job.objective == "inference" and not stated:
        return max(1, tp // ep)
    return stated or (tp if cuts or ep == 1 else 1)


def chunks(job: Job, shape: ModelShape, pp: int) -> int:
    """Virtual pipeline stages on each rank."""
    if pp == 1:
        return 1
    stated = stated_count(job, "vpp", "virtual_stages", "virtual_pipeline_model_parallel_size", "num_virtual_stages")
    each = stated_count(job, "num_layers_per_virtual_pipeline_stage")
    return stated or (max(1, shape.layer_count // (pp * each)) if each else 1)
