"""Fewer captured CUDA graphs on a server: most of the speed, a fraction of the graphs' memory."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_VLLM = "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8, 16, 32]}'"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "cuda-graph" in context.causes[:2] and context.serving and job.get("serving.cuda_graphs") is not False:
        line = line_of(context.framework, "capture-sizes") or _VLLM
        yield Variant(instruction=say("fixes.capture-sizes.how", line=line), effort=0.4)


REMEDY = Remedy(
    name="capture-sizes",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    causes=frozenset({"cuda-graph"}),
    advice=True,
)
