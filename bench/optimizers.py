"""Optimizers that are traced beside those of ``oomdoc trace``; importing this makes them known by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from oomdoc.tracing.running import LEARNING_RATE, MAKERS, flags, foreach


def _lion(params: list[Any], job: dict[str, Any]) -> Any:
    make: Any = import_module("lion_pytorch").Lion
    return make(params, lr=LEARNING_RATE, use_triton=False)


def _bitsandbytes(name: str) -> Callable[[list[Any], dict[str, Any]], Any]:
    """The Trainer's way: states of embeddings stay in 32 bits (``Trainer.create_optimizer``)."""

    def make(params: list[Any], job: dict[str, Any]) -> Any:
        optim: Any = import_module("bitsandbytes").optim
        widest = max(max(p.shape) for p in params)
        tables = [p for p in params if p.ndim == 2 and max(p.shape) == widest][:1]
        manager = optim.GlobalOptimManager.get_instance()
        manager.register_parameters(params)
        if name.endswith("8bit"):
            manager.override_config(tables, "optim_bits", 32)
        return getattr(optim, name)(params, lr=LEARNING_RATE)

    return make


def _muon(params: list[Any], job: dict[str, Any]) -> Any:
    """Matrices of the layers under Muon; embedding, head and vectors under AdamW, as its authors say."""
    widest = max(max(p.shape) for p in params)
    inner = [p for p in params if p.ndim == 2 and max(p.shape) != widest]
    rest = [p for p in params if not any(p is q for q in inner)]
    muon: Any = torch.optim.Muon
    return _Both(muon(inner, lr=LEARNING_RATE), torch.optim.AdamW(rest, lr=LEARNING_RATE, **flags(job)))


def _low_rank(params: list[Any], job: dict[str, Any], make: Any, **more: Any) -> Any:
    """Projections made anew in every step, as the first step and every 200th one do: that is when the peak is."""
    rank = int((job.get("lora") or {}).get("r") or job.get("optimizer_rank") or 128)
    widest = max(max(p.shape) for p in params)
    inner = [p for p in params if p.ndim == 2 and max(p.shape) != widest]
    rest = [p for p in params if not any(p is q for q in inner)]
    groups = [{"params": rest}, {"params": inner, "rank": rank, "update_proj_gap": 1, "scale": 1.0, **more}]
    return make(groups, lr=LEARNING_RATE)


def _galore(params: list[Any], job: dict[str, Any]) -> Any:
    return _low_rank(params, job, import_module("galore_torch").GaLoreAdamW, proj_type="std")


def _apollo(params: list[Any], job: dict[str, Any]) -> Any:
    return _low_rank(
        params, job, import_module("apollo_torch").APOLLOAdamW, proj="random", scale_type="channel", proj_type="std"
    )


class _Both:
    """Two optimizers that step one after the other."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def step(self) -> None:
        """One step of each."""
        for part in self.parts:
            part.step()

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Drop all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)


MAKERS.update(
    {
        "adafactor_torch": lambda p, job: torch.optim.Adafactor(p, lr=LEARNING_RATE, foreach=foreach(job)),
        "adamw_8bit": _bitsandbytes("AdamW8bit"),
        "lion": _bitsandbytes("Lion32bit"),
        "lion_8bit": _bitsandbytes("Lion8bit"),
        "lion_pytorch": _lion,
        "muon": _muon,
        "galore_adamw": _galore,
        "apollo_adamw": _apollo,
    }
)
