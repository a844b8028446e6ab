"""GaLore: Adam's moments in a low-rank projection of the gradient; full-parameter training, small states.

Refused with DeepSpeed by the frameworks that offer it. Zhao et al. 2024, "GaLore".
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    plain = job.method == "full" and job.optimizer == "adamw" and job.sharding in (None, "none", "ddp")
    if plain and not job.offload and context.has("galore_adamw"):
        yield Variant(fields={"optimizer": "galore_adamw"}, effort=3.0)  # a package and settings of its own


REMEDY = Remedy(
    name="galore",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states",),
)
