"""Serve quantised weights: FP8 where the hardware multiplies it, else a 4-bit checkpoint (AWQ or GPTQ) of the same
model; of llama.cpp's files the next smaller one; in a script of its own, bitsandbytes while the weights are loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from oomdoc.diagnosis.fixes._hardware import has_cuda
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job
from oomkb.memory.states import GGUF_BYTES

__all__ = ["REMEDY"]


_FILES = {
    **{"q8_0": 0.8, "q6_k": 0.9, "q5_k_m": 1.0, "q4_k_m": 1.1, "iq4_xs": 1.3, "q3_k_m": 2.2, "iq3_xxs": 3.2},
    **{"q2_k": 4.0, "iq2_xs": 5.5},
}
"""Files of llama.cpp, the largest first, and what each costs: below four bits answers get visibly worse."""


def _smaller_files(job: Job, context: Context) -> Iterator[Variant]:
    here = GGUF_BYTES.get(job.quant or "none", math.inf if job.quant in (None, "none") else 0.0)
    published = (line_of(context.framework, "files") or " ".join(_FILES)).split()
    for name, effort in _FILES.items():
        if GGUF_BYTES[name] < 0.95 * here and name in published:
            how = say("fixes.serving-quant.how-file", name=name.upper())
            yield Variant(fields={"quant": name}, effort=effort, notes=(how,))


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if context.has("spills"):
        yield from _smaller_files(job, context)
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
