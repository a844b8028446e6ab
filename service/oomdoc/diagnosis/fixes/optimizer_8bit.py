"""8-bit optimizer states: about 2 bytes a parameter instead of 8. Dettmers et al. 2021, "8-bit Optimizers".

Plain and paged (paged states may spill into host memory at the step). Not with DeepSpeed's optimizer offload, which
brings its own CPU Adam; not on cards bitsandbytes does not serve.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._hardware import has_bitsandbytes, has_cuda
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.optimizer not in ("adamw", "paged_adamw", None) or "optimizer" in (job.offload or ()):
        return
    if job.sharding in ("fsdp", "fsdp2", "hsdp", "distributed-optimizer"):
        return
    if not has_bitsandbytes(context.device):
        return
    if context.has("adamw_8bit"):
        yield Variant(fields={"optimizer": "adamw_8bit"}, effort=0.6)
    if has_cuda(context.device) and context.has("paged_adamw_8bit"):
        yield Variant(fields={"optimizer": "paged_adamw_8bit"}, effort=0.6)


REMEDY = Remedy(
    name="optimizer-8bit",
    safety="changed-numerics",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states",),
)
