"""When no setting fits: the smallest hardware that would, by GPU and by number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.fixes._job import is_serving, world_size
from oomdoc.diagnosis.fixes.other_gpu import LADDER
from oomdoc.diagnosis.planning._prices import Prices
from oomdoc.diagnosis.planning._result import Hardware

__all__ = ["smallest"]

_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHARDED: Final = ("zero2", "zero3", "fsdp", "fsdp2", "distributed-optimizer")


def smallest(prices: Prices, context: Context, wanted: float, changes: dict[str, Any]) -> Hardware | None:
    """The least memory in all (then the fewest GPUs) on which the job fits with ``changes`` applied."""
    from oomkb.catalog import gpus

    names = ([prices.job.gpu] if prices.job.gpu else []) + list(LADDER)
    options: list[tuple[float, int, str]] = []
    for name in dict.fromkeys(names):
        device = gpus.find(name)
        if device is not None:
            options += [(count * device.capacity_bytes, count, name) for count in _COUNTS]
    tried = 0
    for _, count, name in sorted(options):
        # What is there already, or less of the same, has been searched.
        if name == prices.job.gpu and count <= world_size(prices.job):
            continue
        for fields in _layouts(prices, context, count):
            tried += 1
            price = prices.of({**changes, "gpu": name, "capacity_gib": None, **fields})
            if price is not None and price.probability >= wanted:
                nodes = max(1, count // 8)
                return Hardware(name, count // nodes, nodes, price.probability, fields.get("sharding"))
        if tried > 250:
            break
    return None


def _layouts(prices: Prices, context: Context, count: int) -> Iterator[dict[str, Any]]:
    nodes = max(1, count // 8)
    fields: dict[str, Any] = {"world": count, "gpus": count // nodes, "nodes": nodes, "dp": None}
    if is_serving(prices.job):
        heads = prices.shape.dims.heads
        if count <= 8 and heads % count == 0:
            yield {**fields, "tp": count}
    elif count == 1:
        if prices.job.sharding in (None, "none", "ddp", *_SHARDED) and (prices.job.tp or 1) == 1:
            yield {**fields, "sharding": "none"}
    elif prices.job.sharding in _SHARDED:
        yield fields
    elif context.has("zero") and prices.job.quant in (None, "none"):
        yield {**fields, "sharding": "zero3"}
    elif context.has("fsdp") and prices.job.quant in (None, "none"):
        yield {**fields, "sharding": "fsdp"}
