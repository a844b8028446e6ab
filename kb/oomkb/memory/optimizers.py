"""Bytes of optimizer states and of the step's temporaries, per trained parameter.

Sources: torch 2.13 ``torch/optim``, bitsandbytes 0.50 ``optim`` (block-wise: one byte, 4 bytes per 256),
transformers 5.23 Adafactor, and traces of their steps (``bench/trace.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["OPTIMIZERS", "Optimizer", "step_temporary_bytes"]

_BLOCKWISE: Final = 1 + 4 / 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """States of one optimizer: ``moments`` tensors in the parameters' dtype, ``fixed`` bytes besides."""

    moments: float = 0.0
    fixed: float = 0.0
    foreach: float = 0.0
    """Parameter-sized temporaries of the foreach implementation's step."""
    single: float = 2.0
    """Temporaries of the largest parameter's size in a step that goes parameter by parameter."""
    paged: bool = False
    """States live in unified memory, outside the caching allocator, and move to the host under pressure."""
    keeps_grads: bool = True
    factored: bool = False
    low_rank: bool = False


OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    "none": Optimizer(single=0.0),
    "adamw": Optimizer(moments=2, foreach=1),
    "adamw_8bit": Optimizer(fixed=2 * _BLOCKWISE, single=0.0),
    "adamw_4bit": Optimizer(fixed=2 * (0.5 + 4 / 128), single=4.0),
    "paged_adamw": Optimizer(fixed=8, single=0.0, paged=True),
    "paged_adamw_8bit": Optimizer(fixed=2 * _BLOCKWISE, single=0.0, paged=True),
    "adafactor": Optimizer(factored=True, single=2.0),
    "sgd": Optimizer(),
    "sgd_momentum": Optimizer(moments=1),
    "lion": Optimizer(moments=1, foreach=1),
    "lion_8bit": Optimizer(fixed=_BLOCKWISE, single=0.0),
    "paged_lion_8bit": Optimizer(fixed=_BLOCKWISE, single=0.0, paged=True),
    "muon": Optimizer(moments=1, single=4.0),
    "adagrad": Optimizer(moments=1, foreach=1),
    "rmsprop": Optimizer(moments=1, foreach=1),
    "lomo": Optimizer(keeps_grads=False),
    "galore_adamw": Optimizer(moments=2, low_rank=True, single=3.0),
    "galore_adamw_8bit": Optimizer(fixed=2 * _BLOCKWISE, low_rank=True, single=3.0),
    "apollo_adamw": Optimizer(moments=2, low_rank=True, single=3.0),
}
_NO_TEMPORARIES: Final = frozenset({"sgd", "sgd_momentum"})


def step_temporary_bytes(name: str, impl: str, *, each: float, trained: float, largest: float) -> float:
    """What a step allocates beside weights, gradients and states.

    :param each: bytes of one element. :param trained: trained elements on this GPU. :param largest: of one parameter.
    """
    kind = OPTIMIZERS[name]
    if impl == "fused":
        return 0.0
    if impl == "foreach" and kind.foreach:
        return kind.foreach * trained * each
    if impl == "foreach" and name in _NO_TEMPORARIES:
        return 0.0
    return min(kind.single * largest, 2 * trained) * each
