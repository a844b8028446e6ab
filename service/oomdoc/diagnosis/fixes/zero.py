"""DeepSpeed ZeRO, one stage further: optimizer states (1), gradients (2), parameters (3) split over the ranks.

With one process there is nothing to split over, so it is never proposed there. ZeRO-3 refuses bitsandbytes' 4-bit
weights and pure 16-bit training without masters. Rajbhandari et al. 2020, "ZeRO".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import half_precision, model_parallel, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_STAGES: Final = ("zero1", "zero2", "zero3")
_STARTS: Final = (None, "none", "ddp", "data-parallel", "zero1", "zero2")
# What each stage asks of a person: a launcher and a config file, then another number in it.
_NEW, _NEXT = 1.2, 0.4
_OWN_OPTIMIZER: Final = ("galore_adamw", "galore_adamw_8bit", "apollo_adamw", "lomo", "paged_adamw_8bit", "paged_adamw")


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if world_size(job) // model_parallel(job) < 2 or job.sharding not in _STARTS or not context.has("zero"):
        return
    if job.optimizer in _OWN_OPTIMIZER or job.method in ("galore", "apollo", "badam"):
        return
    at = _STAGES.index(job.sharding) + 1 if job.sharding in _STAGES else 0
    effort = _NEXT if at else _NEW
    for stage in _STAGES[at:]:
        if stage == "zero3" and (job.quant not in (None, "none") or job.method == "qlora"):
            continue
        fields: dict[str, object] = {"sharding": stage}
        # The engine holds 16-bit weights and its own fp32 masters, split as the stage says.
        fields.update(half_precision(job, bf16=context.can("bf16")))
        yield Variant(fields=fields, effort=effort)


REMEDY = Remedy(
    name="zero",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "gradients", "master", "weights"),
)
