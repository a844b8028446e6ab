"""A request as large as one rank's part of the fp32 copy of all parameters: DeepSpeed makes those when it starts.

ZeRO-1 and -2 flatten the parameters and give every rank ``4 × parameters / ranks`` bytes of them in fp32 (the master
weights, then each Adam state) before the first step (``deepspeed/runtime/zero/stage_1_and_2.py``, ``__init__`` and
``initialize_optimizer_states``). No tensor of a forward pass is of that size but by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomdoc.evidence import Fact
from oomkb.units import GIB

__all__ = ["is_partition"]

_FP32: Final = 4
_TOLERANCE: Final = 0.004
"""Share by which a size may differ: messages have two decimals, and partitions are padded."""
_RANKS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 48, 64)
"""Numbers of cards that are tried where none is stated: those of one machine, and whole machines of eight."""
_SMALLEST_GIB: Final = 1.0
"""Below it a tensor of a forward pass is of any size, and one of these by chance."""


def is_partition(facts: Mapping[str, Fact]) -> bool:
    """Whether what was asked for is a rank's part of the fp32 parameters of the model that is named."""
    asked, model, ranks = (_stated(facts, name) for name in ("tried_gib", "model", "gpu_count"))
    if not isinstance(asked, int | float) or asked < _SMALLEST_GIB or not isinstance(model, str):
        return False
    if _stated(facts, "method") in ("lora", "qlora") or _stated(facts, "objective") == "inference":
        return False
    from oomkb.catalog import models

    entry = models.find(model)
    if entry is None or not entry.params:
        return False
    counts = [ranks] if isinstance(ranks, int) and ranks > 0 else list(_RANKS)
    return any(abs(asked * GIB * n / (_FP32 * entry.params) - 1) < _TOLERANCE for n in counts)


def _stated(facts: Mapping[str, Fact], name: str) -> object:
    fact = facts.get(name)
    return fact.value if fact is not None and fact.stated else None
