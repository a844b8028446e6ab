"""Some of the layers on the processor: what llama.cpp and Ollama can do where a model exceeds the cards."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.planning.prices import Prices
from oomdoc.diagnosis.result import Change, Plan
from oomdoc.messages import say
from oomkb.frameworks import line

_USED: Final = 0.96
"""Share of a card that layers are put on."""
_HOST_SPEED: Final = 50e9
"""Bytes a second that two channels of DDR4-3200 give (51.2 GB/s)."""


def spilled(prices: Prices, context: Context, wanted: float) -> Plan | None:
    """As many layers as the cards hold, each with its part of the cache; ``None`` where the engine cannot, or need not.

    Of a model of experts on one card their weights alone, where the engine can: a token reads few of them. Every token
    reads every other weight once: those of the layers elsewhere at the speed of the host's memory.
    """
    estimate, served, device = prices.base.estimate, prices.base.estimate.served, prices.device
    card, shape, cards = prices.capacity_bytes, prices.shape, prices.job.pp or 1
    if served is None or card is None or device is None or device.unified or prices.base.probability >= wanted:
        return None
    weights, layers = estimate.phases["load"].total_bytes, shape.layer_count
    each = (weights + served.needed_bytes) * cards / layers
    fixed = (estimate.needed_bytes or 0.0) - weights - served.needed_bytes
    count = min(layers - 1, cards * int((_USED * card - fixed) / each))
    need, host, away = fixed + -(-count // cards) * each, (layers - count) * each, 1 - count / layers
    key, how = "fixes.spilled.how", line(context.framework, "layers")
    experts, moved = line(context.framework, "experts"), weights * shape.expert_params / shape.text_params / layers
    if experts is not None and cards == 1 and moved:
        whole = math.ceil(((estimate.needed_bytes or 0.0) - _USED * card) / moved)
        if whole <= layers:
            key, how, count, host = "fixes.spilled.how-experts", experts, whole, whole * moved
            need, read = (estimate.needed_bytes or 0.0) - host, shape.dims.top_k / shape.dims.experts
            away = host * read / (weights - layers * moved * (1 - read))
    if how is None or count < 1 or (context.host_bytes and host > 0.9 * context.host_bytes):
        return None
    slower = (device.bandwidth_bytes_per_s or _HOST_SPEED) / _HOST_SPEED
    instruction = say(key, count=count, layers=layers, line=how.replace("{count}", str(count)))
    held = replace(
        estimate, needed_bytes=need, process_bytes=need, reserved_bytes=need, host_bytes=host, fits_probability=wanted
    )
    return Plan(
        name="spilled",
        changes=(Change(remedy="spilled", key="spilled", instruction=instruction),),
        job=prices.job,
        estimate=held,
        fits_probability=wanted,
        relative_speed=1 / (1 - away + away * slower),
        safety="same-numbers",
    )
