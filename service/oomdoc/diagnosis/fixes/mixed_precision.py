"""Mixed precision instead of plain fp32: activations and matrix products in 16 bits, weights stay fp32.

bf16 where the hardware has it, else fp16 with loss scaling. Micikevicius et al. 2017, "Mixed Precision Training".
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    plain = job.param_dtype == "fp32" and job.autocast in (None, "none", "fp32")
    if plain and context.device is not None and context.has("micro_batch"):
        yield Variant(fields={"autocast": "bf16" if context.can("bf16") else "fp16"}, effort=0.5)


REMEDY = Remedy(
    name="mixed-precision",
    safety="changed-numerics",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("activations", "recomputed"),
)
