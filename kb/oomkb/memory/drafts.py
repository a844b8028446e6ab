"""Speculative decoding: the draft model's weights and cache beside the target's.

vLLM and SGLang load the draft on the same GPUs; its layers cache every token as well. A head of the EAGLE or
multi-token kind is one decoder layer of the target's sizes with a projection of two hidden states (arXiv 2401.15077);
embedding and output head are the target's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.cache import cache_bytes, element_bytes
from oomkb.memory.extra_models import extra_shape
from oomkb.memory.job import ExtraModel, Job
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape

__all__ = ["Draft", "draft_bytes"]

_HEADS: Final = ("eagle", "mtp", "nextn", "medusa", "hydra")


@dataclass(frozen=True, slots=True)
class Draft:
    """Bytes on one GPU."""

    weights: float = 0.0
    cache: float = 0.0
    """Of one sequence."""
    heads: int = 0
    """Heads on the target, which cache as one of its layers does."""


def draft_bytes(
    job: Job, s: Setting, shape: ModelShape, shapes: Mapping[str, ModelShape], kv_dtype: str | None, tokens: float
) -> Draft:
    """All models of the role ``draft``."""
    weights, cache, heads = 0.0, 0.0, 0
    for extra in job.extra_models or ():
        if extra.role != "draft" or extra.offload:
            continue
        other = _shape(extra, shapes)
        if other is None:
            heads += 1
            layer = max(shape.layers, key=lambda found: found.params)
            d = shape.dims
            weights += (layer.params + 2 * d.hidden * d.hidden) * 2.0 / s.tp
            split = 1 if d.kv_lora_rank else min(s.tp, d.kv_heads)
            cache += d.kv_elements_per_token / split * element_bytes(s, kv_dtype) * tokens
        else:
            weights += other.params * 2.0 / s.tp
            cache += cache_bytes(s, other, kv_dtype, tokens)
    return Draft(weights, cache, heads)


def _shape(extra: ExtraModel, shapes: Mapping[str, ModelShape]) -> ModelShape | None:
    """The draft's own shape; ``None`` for a head on the target."""
    if isinstance(extra.model, str) and any(word in extra.model.lower() for word in _HEADS):
        return None
    return extra_shape(extra, shapes)
