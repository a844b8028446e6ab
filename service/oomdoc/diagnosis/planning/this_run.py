"""What arithmetic and the printed figures say of the run that failed, as far as plans and instructions depend on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.accounts import WEIGHT_BYTES
from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.forms import host_is_short
from oomdoc.diagnosis.host import host_need
from oomdoc.diagnosis.planning.planner import context_for
from oomdoc.diagnosis.planning.prices import Prices
from oomdoc.diagnosis.planning.printed import (
    ComputeBuffer,
    EngineCache,
    compute_buffer,
    engine_cache,
    of_maker,
    refused_buffer,
)
from oomdoc.evidence import Evidence

_FILLED: Final = 0.9
"""Share of a card that weights take so that nothing which is computed fits beside them."""


def of_this_run(evidence: Evidence, prices: Prices, context: Context) -> Context:
    """The context with the card, the model and the sizes of the priced run."""
    context = context_for(prices, context)
    facts = {**context.facts, **_sizes(evidence, prices, context.phase)}
    return replace(context, device=of_maker(evidence, context.device), facts=facts)


def _sizes(evidence: Evidence, prices: Prices, phase: str) -> dict[str, Any]:
    """What arithmetic knows that an instruction depends on."""
    need = host_need(evidence, prices.job, prices.base.estimate, prices.shape, phase)
    exceeds = (prices.capacity_bytes or math.inf) * _FILLED < WEIGHT_BYTES * prices.shape.params
    return {
        "host_need": need,
        "fits_on_gpu": _fits_on_gpu(prices),
        "half_exceeds_card": exceeds,
        "unpinned_bytes": prices.base.estimate.host_bytes,
    }


def _fits_on_gpu(prices: Prices) -> bool:
    """Whether parameters that are offloaded, else the optimizer's states, would fit the card, and the rest the host."""
    kinds = prices.job.offload or ()
    kept = "param" if "param" in kinds else "optimizer"
    found = prices.of({"offload": [kind for kind in kinds if kind != kept]}) if kept in kinds else None
    if found is None or host_is_short(found.job, found.estimate):
        return False
    return prices.capacity_bytes is None or found.probability >= _MAY_FIT


_MAY_FIT: Final = 0.5


def measured(evidence: Evidence, prices: Prices) -> EngineCache | ComputeBuffer | None:
    """What the engine printed of its own memory, which rules over what is computed."""
    estimate = prices.base.estimate
    request = estimate.served.needed_bytes if estimate.served is not None else 0.0
    loaded = estimate.phases.get("load")
    weights = loaded.total_bytes if loaded is not None else 0.0
    cache = engine_cache(evidence, prices.job, prices.capacity_bytes, request)
    return (
        cache
        or refused_buffer(evidence, prices.job, prices)
        or compute_buffer(evidence, prices.job, weights, prices.capacity_bytes)
    )
