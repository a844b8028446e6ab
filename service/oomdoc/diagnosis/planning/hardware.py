"""Where no setting is enough: the least hardware that is, layers on the processor, the share an engine starts with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import Context, Variant, is_serving, remedy, world_size
from oomdoc.diagnosis.fixes.hardware import ladder
from oomdoc.diagnosis.fixes.serving import serving_length
from oomdoc.diagnosis.fixes.sharding import share_lowered
from oomdoc.diagnosis.planning.moves import Move, offered, variants_on
from oomdoc.diagnosis.planning.prices import Hardware, Price, Prices
from oomdoc.diagnosis.planning.spelling import key_of
from oomdoc.diagnosis.result import Change, Plan
from oomdoc.evidence import say
from oomkb.catalog import gpus
from oomkb.frameworks import line
from oomkb.memory.job import Job

_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MILD: Final = ("micro-batch", "grad-ckpt", "fused-ce", "attention", "serving-concurrency", "serving-length")
_SHARDED: Final = ("zero2", "zero3", "fsdp", "fsdp2", "distributed-optimizer")


def smallest(prices: Prices, context: Context, wanted: float) -> Hardware | None:
    """The least memory in all (then the fewest GPUs) on which the job fits.

    As it is, unless milder settings (checkpointing, a smaller micro-batch) need no more than half of that.
    """
    options = _options(prices)
    milder = _milder(prices, context)
    eased = _first(prices, context, wanted, options, milder) if milder else None
    below = [o for o in options if eased is None or o[0] < 2 * eased[0]]
    as_it_is = _first(prices, context, wanted, below, {})
    found = as_it_is or eased
    return found[1] if found is not None else None


def _options(prices: Prices) -> list[tuple[float, int, str]]:
    """Bytes in all, number of cards, name: smallest first."""
    device = gpus.find(prices.job.gpu) if prices.job.gpu else None
    cards = {**({str(prices.job.gpu): device} if device is not None else {}), **dict(ladder(device))}
    options = [(float(n * card.capacity_bytes), n, name) for name, card in cards.items() for n in _COUNTS]
    return sorted(options)


def _first(
    prices: Prices, context: Context, wanted: float, options: list[tuple[float, int, str]], changes: dict[str, Any]
) -> tuple[float, Hardware] | None:
    for size, count, name in options:
        # What is there already, or less of the same, has been searched.
        if name == prices.job.gpu and count <= world_size(prices.job):
            continue
        for fields in _layouts(prices, context, count):
            price = prices.of({**changes, "gpu": name, "capacity_gib": None, **fields})
            if price is not None and price.probability >= wanted:
                nodes = max(1, count // 8)
                sharding = fields.get("sharding")
                split = {n: fields[n] for n in ("tp", "pp") if fields.get(n, 1) > 1 and not is_serving(prices.job)}
                return size, Hardware(name, count // nodes, nodes, price.probability, sharding, {**split, **changes})
    return None


def _milder(prices: Prices, context: Context) -> dict[str, Any]:
    """The strongest of the settings that leave the numbers as they are and the layout alone."""
    fields: dict[str, Any] = {}
    for move in offered(prices.job, context):
        if move.remedy.name in _MILD and not move.needs and "offload" not in move.fields.values():
            fields.update(move.fields)
    return fields


def _megatron(prices: Prices, count: int) -> Iterator[tuple[int, int]]:
    """Tensor parallelism as wide as a machine and the heads allow, then as few pipeline stages as do."""
    d, layers = prices.shape.dims, prices.shape.layer_count
    tp = max(n for n in (1, 2, 4, 8) if n <= count and d.heads % n == 0 and (not d.kv_heads or d.kv_heads % n == 0))
    for pp in (1, 2, 4, 8, 16):
        if tp * pp <= count and count % (tp * pp) == 0 and layers % pp == 0:
            yield tp, pp


def _layouts(prices: Prices, context: Context, count: int) -> Iterator[dict[str, Any]]:
    nodes = max(1, count // 8)
    fields: dict[str, Any] = {"world": count, "gpus": count // nodes, "nodes": nodes, "dp": None}
    if is_serving(prices.job):
        fields |= share_lowered(prices.job)
        heads = prices.shape.dims.heads
        if context.has("spills"):
            yield {**fields, "pp": count} if count <= 8 else fields
        elif count <= 8 and heads % count == 0:
            yield {**fields, "tp": count}
    elif context.has("distributed_optimizer"):
        for tp, pp in _megatron(prices, count):
            yield {**fields, "tp": tp, "pp": pp, "sharding": "distributed-optimizer" if count > tp * pp else "none"}
    elif count == 1:
        if prices.job.sharding in (None, "none", "ddp", *_SHARDED) and (prices.job.tp or 1) == 1:
            yield {**fields, "sharding": "none"}
    elif prices.job.sharding in _SHARDED:
        yield fields
    elif context.has("zero") and prices.job.quant in (None, "none"):
        yield {**fields, "sharding": "zero3"}
    elif context.has("fsdp") and prices.job.quant in (None, "none"):
        yield {**fields, "sharding": "fsdp"}


def spilled(prices: Prices, context: Context, wanted: float) -> Plan | None:
    """As many layers as the cards hold, each with its part of the cache; ``None`` where the engine cannot, or need not.

    Of a model of experts on one card their weights alone, where the engine can and that is enough: a token reads few of
    them.
    """
    device, layers, framework = prices.device, prices.shape.layer_count, context.framework
    if not is_serving(prices.job) or device is None or device.unified or prices.base.probability >= wanted:
        return None
    present = prices.job.get("serving.gpu_layers")
    counts = {"serving.gpu_layers": range(min(layers, layers if present is None else present), 0, -1)}
    if prices.shape.expert_params and (prices.job.pp or 1) == 1 and line(framework, "experts"):
        counts = {"serving.cpu_expert_layers": range(1, layers + 1), **counts}
    for field, steps in counts.items():
        how = line(framework, "experts" if field == "serving.cpu_expert_layers" else "layers")
        at = bisect_left(steps, True, key=partial(_holds, prices, wanted, field))
        price = prices.of({field: steps[at]}) if at < len(steps) else None
        if how is None or price is None or not context.host_holds(price.estimate.host_bytes):
            continue
        count = steps[at]
        key = "fixes.spilled.how-experts" if field == "serving.cpu_expert_layers" else "fixes.spilled.how"
        instruction = say(key, count=count, layers=layers, line=how.replace("{count}", str(count)))
        change = Change(
            remedy="spilled",
            key=key_of(framework, field),
            old=prices.job.get(field),
            new=count,
            fields={field: count},
            instruction=instruction,
        )
        return Plan(
            name="spilled",
            changes=(change,),
            job=price.job,
            estimate=price.estimate,
            fits_probability=price.probability,
            relative_speed=round(price.speed, 3),
            safety="same-numbers",
        )
    return None


def _holds(prices: Prices, wanted: float, field: str, count: int) -> bool:
    price = prices.of({field: count})
    return price is not None and price.probability >= wanted


_SHORT: Final = "estimate.rollout-short"
_SHARE: Final = "rollout.gpu_memory_utilization"
_HIGHEST: Final = 0.9
_STEP: Final = 0.05


@remedy("same-numbers", "rl")
def rollout_utilization(job: Job, context: Context) -> Iterator[Variant]:
    """More than the stated share, up to what a card has to spare; less than it is the remedy of this name."""
    now = job.get(_SHARE)
    if now is not None and context.has("rollout"):
        for n in range(1, int((_HIGHEST - now) / _STEP + 1e-9) + 1):
            yield Variant(fields={_SHARE: round(now + n * _STEP, 2)}, effort=0.2)


def share_that_starts(prices: Prices, context: Context) -> Move | None:
    """The least share with which the engine starts, where the stated one is too small for that."""
    if not _is_short(prices.base):
        return None
    variants = variants_on(rollout_utilization, prices.job, context)
    moves = (Move(rollout_utilization, variant, dict(variant.fields)) for variant in variants)
    priced = ((move, prices.of(move.fields)) for move in moves)
    return next((move for move, price in priced if price is not None and not _is_short(price)), None)


def length_in_need(prices: Prices, context: Context) -> Move | None:
    """The context that a person needs, where the engine was refused a longer one that nobody asked for."""
    needed, now = context.facts.get("needed_length"), prices.job.get(_CONTEXT)
    if not needed or not now or not _LEAST_NEEDED <= needed < now or context.causes[:1] != ("kv-cache",):
        return None
    variant = Variant(fields={_CONTEXT: needed}, effort=0.1)
    return Move(serving_length, variant, dict(variant.fields))


_CONTEXT: Final = "serving.max_model_len"
_LEAST_NEEDED: Final = 256


def _is_short(price: Price) -> bool:
    return any(warning.key == _SHORT for warning in price.estimate.warnings)
