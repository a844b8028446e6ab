"""Fewer requests at once: a smaller KV cache demand, smaller graphs, a smaller sampler."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("serving.max_num_seqs")
    if now is None or not context.has("serving.max_num_seqs"):
        return
    for rank, count in enumerate((256, 128, 64, 32, 16, 8)):
        if count < now:
            yield Variant(fields={"serving.max_num_seqs": count}, effort=0.4 + 0.4 * rank)


REMEDY = Remedy(
    name="serving-concurrency",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("kv", "activations", "graph", "logits", "sampler"),
)
