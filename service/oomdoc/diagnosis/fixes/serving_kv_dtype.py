"""An 8-bit KV cache: half the bytes per token, where the hardware has fp8; llama.cpp's own blocks on any. Changes the
numerics.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("serving.kv_dtype")
    wide = now in (None, "auto", "bf16", "fp16", "bfloat16", "float16")
    if wide and context.has("spills"):
        line = line_of(context.framework, "kv-q8_0")
        how = (say("fixes.serving-kv-dtype.how", line=line),) if line else ()
        yield Variant(fields={"serving.kv_dtype": "q8_0"}, effort=0.5, notes=how)
    elif wide and context.has("serving.kv_dtype") and context.device is not None and context.can("fp8"):
        yield Variant(fields={"serving.kv_dtype": "fp8"}, effort=0.5)


REMEDY = Remedy(
    name="serving-kv-dtype",
    safety="changed-numerics",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("kv",),
)
