"""CUDA graphs for small batches only: most of the speed, a part of what the captured graphs hold."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.get("serving.cuda_graphs") is False or not context.has("serving.graph_batch"):
        return
    now = job.get("serving.graph_batch") or job.get("serving.max_num_seqs")
    for rank, size in enumerate((64, 32, 16, 8)):
        if now is None or size < now:
            yield Variant(fields={"serving.graph_batch": size}, effort=0.4 + 0.1 * rank)


REMEDY = Remedy(
    name="serving-graphs",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("graph", "CUDA graphs"),
)
