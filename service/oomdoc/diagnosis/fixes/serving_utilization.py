"""The share of the GPU that a server takes: up when the KV cache has no room, down when something else needs the rest.

vLLM's ``--gpu-memory-utilization`` counts weights, activations and KV cache; SGLang's ``--mem-fraction-static``
weights and KV cache only. CUDA context, graphs and other processes live outside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_HIGHEST = 0.95
_LOWEST = 0.5


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("serving.gpu_memory_utilization")
    if now is None or not context.has("serving.utilization"):
        return
    for step in (0.05, 0.1, 0.2, 0.3):
        if now - step >= _LOWEST:
            yield Variant(fields={"serving.gpu_memory_utilization": round(now - step, 2)}, effort=0.3 + step)
    # Raising it makes room for the KV cache where the weights leave too little of the share.
    for higher in (0.9, _HIGHEST):
        if higher > now:
            yield Variant(fields={"serving.gpu_memory_utilization": higher}, effort=0.3)


REMEDY = Remedy(
    name="serving-utilization",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
)
