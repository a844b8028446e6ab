"""The share of the GPU that a server takes: up when the KV cache has no room, down when something else needs the rest.

vLLM's ``--gpu-memory-utilization`` counts weights, activations and KV cache; SGLang's ``--mem-fraction-static``
weights and KV cache only. CUDA context, graphs and other processes live outside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["OUTSIDE", "REMEDY"]

_HIGHEST = 0.95
_LOWEST = 0.5
OUTSIDE = frozenset({"logits", "activations", "attention-scores", "cuda-graph", "vision-tokens", "other-process"})
"""Causes that take memory beside the pool."""


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("serving.gpu_memory_utilization")
    if now is None or not context.has("serving.utilization"):
        return
    missing = _missing_share(context)
    for step in (0.03, 0.05, 0.1, 0.15, 0.2, 0.3) if not missing else ():
        if now - step >= _LOWEST:
            yield Variant(fields={"serving.gpu_memory_utilization": round(now - step, 2)}, effort=0.3 + step)
    # Raising it makes room for the KV cache where the weights leave too little of the share; what failed outside of
    # the share has less room then.
    if context.causes[:1] and context.causes[0] in OUTSIDE:
        return
    for higher in (0.9, _HIGHEST):
        if higher > now and higher - now >= missing:
            yield Variant(fields={"serving.gpu_memory_utilization": higher}, effort=0.3)


def _missing_share(context: Context) -> float:
    """The share of the card by which the engine itself says that its cache is too small; 0 where it says nothing."""
    missing = context.facts.get("engine_cache_missing_bytes")
    if not missing or context.device is None or not context.device.capacity_bytes:
        return 0.0
    return float(missing) / float(context.device.capacity_bytes)


REMEDY = Remedy(
    name="serving-utilization",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
)
