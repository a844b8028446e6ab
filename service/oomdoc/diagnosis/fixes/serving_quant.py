"""Serve quantised weights: FP8 where the hardware multiplies it, else a 4-bit checkpoint (AWQ or GPTQ) of the same
model; of llama.cpp's files the next smaller one; in a script of its own, bitsandbytes while the weights are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._hardware import has_cuda
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


_FILES = {"q8_0": 0.8, "q6_k": 0.9, "q5_k_m": 1.0, "q4_k_m": 1.1, "q3_k_m": 2.2, "q2_k": 3.5}
"""Files of llama.cpp, the largest first, and what each costs: below four bits answers get visibly worse."""


def _smaller_files(job: Job) -> Iterator[Variant]:
    names = list(_FILES)
    here = names.index(job.quant) if job.quant in _FILES else -1 if job.quant in (None, "none") else len(names)
    for name in names[here + 1 :]:
        how = say("fixes.serving-quant.how-file", name=name.upper())
        yield Variant(fields={"quant": name}, effort=_FILES[name], notes=(how,))


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if context.has("spills"):
        yield from _smaller_files(job)
        return
    if job.quant not in (None, "none") or context.device is None:
        return
    if context.script and context.has("qlora"):
        yield Variant(fields={"quant": "int8"}, effort=0.8)
        yield Variant(fields={"quant": "nf4"}, effort=1.0)
    if not context.has("serving.quant"):
        return
    if context.can("fp8"):
        how = () if context.has("quant-on-load") else (say("fixes.serving-quant.how-fp8"),)
        yield Variant(fields={"quant": "fp8"}, effort=0.8, notes=how)
    if has_cuda(context.device):
        yield Variant(fields={"quant": "awq-int4"}, effort=1.5, notes=(say("fixes.serving-quant.how"),))


REMEDY = Remedy(
    name="serving-quant",
    safety="changed-numerics",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("weights",),
)
