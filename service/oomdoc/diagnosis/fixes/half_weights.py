"""Weights held in 16 bits instead of fp32 (pure bf16 training): weights, gradients and Adam's moments halve.

Without an fp32 master small updates are rounded away, so this changes the numerics. bf16 needs hardware for it;
fp16 without masters does not train, so it is offered for frozen weights only: those of LoRA, and of inference.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import is_lora, is_serving
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if is_serving(job):
        if job.param_dtype == "fp32" and job.quant in (None, "none"):
            yield Variant(
                fields={"param_dtype": "bf16" if context.device and context.can("bf16") else "fp16"}, effort=0.3
            )
        return
    if job.param_dtype != "fp32" or not context.has("pure_bf16") or job.quant not in (None, "none"):
        return
    if job.sharding in ("zero1", "zero2", "zero3", "distributed-optimizer"):
        return  # these engines keep their own fp32 masters, sharded
    if context.device is not None and context.can("bf16"):
        yield Variant(fields={"param_dtype": "bf16", "autocast": "bf16"}, effort=1.2)
    elif is_lora(job) and job.autocast == "fp16":
        yield Variant(fields={"param_dtype": "fp16"}, effort=0.6)


REMEDY = Remedy(
    name="half-weights",
    safety="changed-numerics",
    kinds=frozenset({"training", "serving"}),
    variants=_variants,
    reduces=("weights", "gradients", "optimizer states", "master", "activations", "kv"),
)
