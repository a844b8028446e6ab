"""QLoRA: adapters over a base stored in 4 bits (NF4, double quantisation). Dettmers et al. 2023, "QLoRA".

Not with ZeRO-3 or ZeRO's parameter offload: bitsandbytes' packed weights cannot be partitioned by DeepSpeed's
engine in most frameworks, so it is proposed for unsharded, DDP and ZeRO-1/2 runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._extra import find, without
from oomdoc.diagnosis.fixes._hardware import has_bitsandbytes
from oomdoc.diagnosis.fixes._job import half_precision
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Safety, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_UNSHARDED = (None, "none", "ddp", "zero1", "zero2", "device-map")


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    quantised = job.quant not in (None, "none") or job.method == "qlora"
    if quantised or job.objective == "pretrain" or not context.has("qlora"):
        return
    device = context.device
    if not has_bitsandbytes(device):
        return
    if job.sharding not in _UNSHARDED or "param" in (job.offload or ()):
        return
    fields: dict[str, object] = {"method": "qlora", "quant": "nf4-double"}
    if job.method not in ("lora", "qlora"):
        fields["lora"] = {"r": 16, "targets": "all-linear"}
        if find(job, "reference"):
            fields["extra_models"] = without(job, "reference")
    fields.update(half_precision(job, bf16=context.can("bf16")))
    # From LoRA the base's precision changes; from full fine-tuning the training does.
    safety: Safety = "changed-numerics" if job.method == "lora" else "changed-training"
    yield Variant(fields=fields, effort=1.5, safety=safety)


REMEDY = Remedy(
    name="qlora",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("weights", "gradients", "optimizer states", "master"),
)
