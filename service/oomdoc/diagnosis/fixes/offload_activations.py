"""What backward needs moves to host memory during forward and comes back in time.

Cheap where the host link keeps up with the layers (long sequences), slow where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    offload = job.offload or ()
    if "activations" not in offload and job.grad_ckpt != "offload" and context.has("offload.activations"):
        yield Variant(fields={"offload": [*offload, "activations"]}, effort=1.0)


REMEDY = Remedy(
    name="offload-activations",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("activations", "recomputed"),
)
