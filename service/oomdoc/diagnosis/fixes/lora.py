"""LoRA: train small adapters, keep the model frozen. Gradients and optimizer states of the base vanish; activations
and logits stay almost as they are. Hu et al. 2021, "LoRA".
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._extra import find, without
from oomdoc.diagnosis.fixes._job import half_precision
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_FULL = ("full", "freeze", "galore", "apollo", "lisa", "badam")


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.method not in _FULL or job.objective == "pretrain" or not context.has("lora"):
        return
    fields: dict[str, object] = {"method": "lora", "lora": {"r": 16, "targets": "all-linear"}}
    if job.objective in ("dpo", "kto", "grpo", "ppo") and find(job, "reference"):
        # The frozen base serves as the reference.
        fields["extra_models"] = without(job, "reference")
    if job.optimizer in ("galore_adamw", "galore_adamw_8bit", "apollo_adamw", "lomo"):
        fields["optimizer"] = "adamw"
    # A frozen base needs no fp32 master: it is held in the dtype it computes in.
    fields.update(half_precision(job, bf16=context.can("bf16")))
    yield Variant(fields=fields, effort=1.5)


REMEDY = Remedy(
    name="lora",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("gradients", "optimizer states", "master"),
)
