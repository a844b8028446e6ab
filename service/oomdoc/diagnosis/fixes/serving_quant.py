"""Serve quantised weights: FP8 where the hardware multiplies it, else a 4-bit checkpoint (AWQ or GPTQ) of the same
model.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._hardware import has_cuda
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.quant not in (None, "none") or not context.has("serving.quant") or context.device is None:
        return
    if context.can("fp8"):
        yield Variant(fields={"quant": "fp8"}, effort=0.8)
    if has_cuda(context.device):
        yield Variant(fields={"quant": "awq-int4"}, effort=1.5, notes=(say("fixes.serving-quant.how"),))


REMEDY = Remedy(
    name="serving-quant",
    safety="changed-numerics",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("weights",),
)
