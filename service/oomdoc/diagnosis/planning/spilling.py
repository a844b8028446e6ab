"""Some of the layers on the processor: what llama.cpp and Ollama can do where a model exceeds the cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.planning.prices import Prices
from oomdoc.diagnosis.result import Change, Plan
from oomdoc.messages import say
from oomkb.frameworks import line

__all__ = ["spilled"]

_USED: Final = 0.96
"""Share of a card that layers are put on."""
_HOST_SPEED: Final = 50e9
"""Bytes a second that two channels of DDR4-3200 give (51.2 GB/s)."""


def spilled(prices: Prices, context: Context, wanted: float) -> Plan | None:
    """As many layers as the cards hold, each with its part of the cache; ``None`` where the engine cannot, or need not.

    Every token reads every weight once: those of the other layers at the speed of the host's memory.
    """
    estimate, how = prices.base.estimate, line(context.framework, "layers")
    served, card, device = estimate.served, prices.capacity_bytes, prices.device
    if how is None or served is None or card is None or device is None or device.unified:
        return None
    weights, layers, cards = estimate.phases["load"].total_bytes, prices.shape.layer_count, prices.job.pp or 1
    each = (weights + served.needed_bytes) * cards / layers
    fixed = (estimate.needed_bytes or 0.0) - weights - served.needed_bytes
    count = min(layers - 1, cards * int((_USED * card - fixed) / each))
    host = (layers - count) * each
    if count < 1 or prices.base.probability >= wanted or (context.host_bytes and host > 0.9 * context.host_bytes):
        return None
    need, share = fixed + -(-count // cards) * each, count / layers
    slower = (device.bandwidth_bytes_per_s or _HOST_SPEED) / _HOST_SPEED
    told = say("fixes.spilled.how", count=count, layers=layers, line=how.replace("{count}", str(count)))
    held = replace(
        estimate, needed_bytes=need, process_bytes=need, reserved_bytes=need, host_bytes=host, fits_probability=wanted
    )
    return Plan(
        name="spilled",
        changes=(Change(remedy="spilled", key="spilled", instruction=told),),
        job=prices.job,
        estimate=held,
        fits_probability=wanted,
        relative_speed=1 / (share + (1 - share) * slower),
        safety="same-numbers",
    )
