"""Fewer samples at a time in evaluation: the same figures, a smaller peak where evaluation is the fullest phase."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    size = None if "eval_micro_batch" in job.assumed else job.eval_micro_batch
    while size is not None and size > 1 and context.has("eval"):
        size //= 2
        yield Variant(fields={"eval_micro_batch": size}, effort=0.2)


REMEDY = Remedy(
    name="eval-micro-batch",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("logits", "activations", "attention", "recomputed"),
)
