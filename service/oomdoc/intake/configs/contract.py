"""From job fields to the contract's fact names: ``sharding: zero3`` is also ``zero_stage: 3``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from oomdoc.evidence import Fact
from oomkb.frameworks import ENGINES, has

_LOOSE: Final = 0.6
"""How sure scattered keys of an engine are that models are served: RL trainers have the same keys."""


def _as(fact: Fact, name: str, value: Any) -> Fact:
    return replace(fact, name=name, value=value)


def _dtype(facts: Mapping[str, Fact]) -> Fact | None:
    autocast, held = facts.get("autocast"), facts.get("param_dtype")
    if autocast is not None and autocast.value in ("bf16", "fp16"):
        return autocast
    return held


def contract_facts(facts: Mapping[str, Fact], framework: str | None) -> Iterator[Fact]:
    """The contract's own names for what job fields say."""
    sharding = facts.get("sharding")
    if sharding is not None:
        word = str(sharding.value)
        if word.startswith("zero"):
            yield _as(sharding, "zero_stage", int(word[-1]))
        elif word in ("fsdp", "fsdp2", "hsdp", "shard-grad-op"):
            yield _as(sharding, "fsdp", True)
    dtype = _dtype(facts)
    if dtype is not None and dtype.value in ("bf16", "fp16", "fp32"):
        yield _as(dtype, "dtype", dtype.value)
    yield from _gpus(facts)
    for name in ("gpu_memory_utilization", "max_model_len") if not has(framework, "serving.own_share") else ():
        fact = facts.get(f"serving.{name}") or facts.get(f"rollout.{name}")
        if fact is not None:
            yield _as(fact, name, fact.value)
    method, quant = facts.get("method"), facts.get("quant")
    four_bit = quant is not None and quant.value in ("nf4", "nf4-double")
    if quant is not None and four_bit and method is not None and method.value == "lora":
        yield _as(quant, "method", "qlora")
    elif method is None and facts.get("lora.r") is not None:
        yield _as(facts["lora.r"], "method", "qlora" if four_bit else "lora")
    if facts.get("objective") is None and framework in ENGINES:
        first = next(iter(facts.values()), None)
        if first is not None:
            sure = min(first.confidence, _LOOSE) if first.origin == "prose" else first.confidence
            yield replace(first, name="objective", value="inference", confidence=sure)


def _gpus(facts: Mapping[str, Fact]) -> Iterator[Fact]:
    world, gpus, nodes = facts.get("world"), facts.get("gpus"), facts.get("nodes")
    if world is not None:
        yield _as(world, "gpu_count", world.value)
    elif gpus is not None:
        yield _as(gpus, "gpu_count", gpus.value * (nodes.value if nodes is not None else 1))
