"""Smaller communication buckets and less prefetch: DeepSpeed's defaults (5e8 elements) hold gigabytes.

Counts are elements, 2 bytes each, held twice where communication overlaps. DeepSpeed runtime/zero/config.py 0.15-0.19.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_SMALL: Final = 5e7
_STAGE3: Final = {"buckets.stage3_prefetch_bucket_size": 1e7, "buckets.stage3_max_live_parameters": 1e8}


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.sharding not in ("zero1", "zero2", "zero3") or not context.has("buckets"):
        return
    names = ["reduce_bucket_size"] if job.sharding == "zero3" else ["reduce_bucket_size", "allgather_bucket_size"]
    fields: dict[str, object] = {}
    for name in names:
        if _elements(job, name, 5e8) > _SMALL:
            fields[f"buckets.{name}"] = _SMALL
    if job.sharding == "zero3":
        for field, small in _STAGE3.items():
            if _elements(job, field.partition(".")[2], 0.0) > small:
                fields[field] = small
    if fields:
        yield Variant(fields=fields, effort=0.6)


def _elements(job: Job, name: str, default: float) -> float:
    # "auto" is resolved by the trainer to hidden x hidden, which is small already.
    size: Any = job.buckets.get(name, default)
    return 0.0 if isinstance(size, str) else float(size)


REMEDY = Remedy(
    name="buckets",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("bucket", "buffer", "gather", "gathered", "communication"),
)
