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
    if "activations" in offload or job.grad_ckpt == "offload" or not context.has("offload.activations"):
        return
    # Without checkpointing every activation would travel, which torchtune refuses (its recipes, 0.4 to 0.6) and no host
    # link keeps up with.
    first = {} if job.grad_ckpt or not context.has("grad_ckpt") else {"grad_ckpt": True}
    yield Variant(fields={**first, "offload": [*offload, "activations"]}, effort=1.0)


REMEDY = Remedy(
    name="offload-activations",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("activations", "recomputed"),
)
