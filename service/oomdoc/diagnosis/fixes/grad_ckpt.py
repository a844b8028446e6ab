"""Gradient checkpointing: keep one input per layer and compute the rest again in backward.

Full: about a third more compute for most of the activations. Selective: only attention's inside is computed again
(Megatron's ``core_attn``). Offloaded: the kept inputs too move to host memory.
Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; Korthikanti et al. 2022.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    state = job.grad_ckpt
    if state == "offload":
        return
    if state in (None, False) and context.has("grad_ckpt.selective"):
        yield Variant(fields={"grad_ckpt": "selective"}, effort=0.3)
    if state is not True and context.has("grad_ckpt"):
        yield Variant(fields={"grad_ckpt": True}, effort=0.3)
    if "activations" not in (job.offload or ()) and context.has("grad_ckpt.offload"):
        yield Variant(fields={"grad_ckpt": "offload"}, effort=0.6)


REMEDY = Remedy(
    name="grad-ckpt",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("activations", "recomputed"),
)
