"""The optimizer's step in one kernel: PyTorch's foreach step makes temporaries as large as a state, the fused one none.

``optim: adamw_torch_fused`` (transformers 4.29), ``AdamW(..., fused=True)`` (torch 2.0 and later). The same update.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    plain = job.optimizer in (None, "adamw") and job.optimizer_impl == "foreach"
    if plain and "optimizer" not in (job.offload or ()) and not (job.sharding or "").startswith("zero"):
        yield Variant(fields={"optimizer_impl": "fused"}, effort=0.3)


REMEDY = Remedy(
    name="optimizer-fused",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer temporaries",),
)
