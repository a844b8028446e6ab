"""Context parallelism (ring attention): the whole forward pass of one sample split by tokens over several GPUs.

Liu et al. 2023, "Ring Attention".
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import model_parallel, world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_WORTHWHILE = 8192


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now, world = job.cp or 1, world_size(job)
    if not context.has("cp") or job.attention == "eager" or (job.seq_len or 0) < _WORTHWHILE:
        return
    other = model_parallel(job) // now * (job.sp or 1 if not context.has("sp.megatron") else 1)
    size = now * 2
    while size <= min(16, world):
        if world % (size * other) == 0:
            yield Variant(fields={"cp": size}, effort=1.0)
        size *= 2


REMEDY = Remedy(
    name="context-parallel",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("logits", "activations", "attention", "recomputed"),
)
