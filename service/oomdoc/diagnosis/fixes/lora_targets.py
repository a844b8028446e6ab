"""Adapters on the attention projections only: fewer adapters, and fewer layer inputs kept for them in backward."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import is_lora
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    # Names only where the family is known to use them: fused projections (phi3, chatglm, gpt2) have others.
    family = context.shape.dims.model_type if context.shape is not None else ""
    if not is_lora(job) or job.get("lora.targets") != "all-linear" or not context.has("lora"):
        return
    if family.startswith(("llama", "qwen2", "qwen3", "mistral", "gemma", "mixtral")):
        yield Variant(fields={"lora.targets": ["q_proj", "v_proj"]}, effort=0.5)


REMEDY = Remedy(
    name="lora-targets",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("weights", "adapter", "gradients", "optimizer states", "activations"),
)
