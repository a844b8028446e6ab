"""Questions that many remedies ask of a job."""

from __future__ import annotations

from oomkb.frameworks import has
from oomkb.memory.job import Job
from oomkb.memory.ranks import model_parallel
from oomkb.memory.setting import ONLINE, PREFERENCE

DEEPSPEED = frozenset({"zero1", "zero2", "zero3"})


def is_serving(job: Job) -> bool:
    """Whether nothing is trained."""
    return job.objective == "inference" or (job.objective is None and job.serving is not None)


def is_script(job: Job) -> bool:
    """Whether it is inference without an engine, as :func:`oomkb.memory.engines.engine_of` takes it."""
    return is_serving(job) and job.serving is None and not (job.framework and has(job.framework, "serving"))


def is_preference(job: Job) -> bool:
    """DPO and its relatives: pairs go through together."""
    return job.objective in PREFERENCE


def is_rl(job: Job) -> bool:
    """Whether the job generates its own samples."""
    return job.objective in ONLINE or job.rollout is not None


def feature_of(name: str, job: Job) -> str:
    """A framework's feature of that name as its trainer for this objective has it: ``fused_ce.rl``, ``fused_ce``."""
    return f"{name}.rl" if is_rl(job) else f"{name}.preference" if is_preference(job) else name


def is_lora(job: Job) -> bool:
    """Whether only adapters are trained."""
    return job.method in ("lora", "qlora", "oft", "prompt") or (job.method is None and job.lora is not None)


def world_size(job: Job) -> int:
    """Ranks in all: stated, else machines x GPUs, else one."""
    return job.world or (job.gpus or 0) * (job.nodes or 1) or (job.dp or 1) * model_parallel(job)


def sequence_groups(job: Job) -> int:
    """Ranks that share a sequence; Megatron's are those of the tensor-parallel group and take no GPUs of their own."""
    return 1 if has(job.framework, "sp.megatron") else job.sp or 1


def data_parallel(job: Job) -> int:
    """Replicas that see different samples (ranks of one sequence-parallel group see the same ones)."""
    if job.world or job.gpus or not job.dp:
        return max(1, world_size(job) // (model_parallel(job) * sequence_groups(job)))
    return job.dp


def global_batch(job: Job) -> int | None:
    """Samples per optimizer step; ``None`` where the micro-batch is not known."""
    return None if job.micro_batch is None else job.micro_batch * (job.grad_accum or 1) * data_parallel(job)


def kinds_of(job: Job) -> frozenset[str]:
    """Which remedies can apply at all."""
    kinds = {"any", "serving" if is_serving(job) else "training"}
    if is_preference(job):
        kinds.add("preference")
    if is_rl(job):
        kinds.add("rl")
    if job.max_pixels or job.images or job.video_frames:
        kinds.add("vision")
    return frozenset(kinds)


def half_precision(job: Job, *, bf16: bool) -> dict[str, str]:
    """Fields that hold a mixed-precision job's fp32 weights in its 16-bit dtype; ``bf16``: whether the card has it."""
    if job.param_dtype != "fp32" or job.autocast not in ("bf16", "fp16"):
        return {}
    if job.autocast == "bf16" and not bf16:
        return {"param_dtype": "fp16", "autocast": "fp16"}
    return {"param_dtype": job.autocast}
