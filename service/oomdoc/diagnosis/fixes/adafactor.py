"""Adafactor: factored second moments and no first one, next to no optimizer memory. Shazeer and Stern 2018."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    adam = job.optimizer in ("adamw", "paged_adamw", "adamw_8bit", "paged_adamw_8bit")
    if not adam or not context.has("adafactor"):
        return
    # DeepSpeed refuses optimizers it does not know with ZeRO offload; FSDP's flat shards have no rows to factor.
    if not job.offload and job.sharding in (None, "none", "ddp", "device-map"):
        yield Variant(fields={"optimizer": "adafactor"}, effort=1.0)


REMEDY = Remedy(
    name="adafactor",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states",),
)
