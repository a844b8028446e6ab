"""Bytes of optimizer states and of the step's temporaries, per trained parameter.

Sources: torch 2.13 ``torch/optim``, bitsandbytes 0.50 ``optim`` (block-wise: one byte, 4 bytes per 256; its 32-bit
states are fp32 whatever the parameters are), transformers 5.23 Adafactor, galore-torch 1.0, apollo-torch 1.0,
lion-pytorch 0.2.5, and traces of their steps (``bench/trace.py``; ``tests/kb/memory/data/optimizers.jsonl``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.job import Job
from oomkb.memory.ranks import stated_count
from oomkb.memory.releases import transformers_of
from oomkb.memory.shape import ModelShape

_BLOCKWISE: Final = 1 + 4 / 256
PROJECTED: Final[Mapping[tuple[str, str], str]] = {
    ("galore", "adamw"): "galore_adamw",
    ("galore", "adamw_8bit"): "galore_adamw_8bit",
    ("apollo", "adamw"): "apollo_adamw",
}
"""(method, optimizer) -> the optimizer that projects the gradients."""
_FUSED: Final = frozenset({"adamw", "sgd", "sgd_momentum", "adagrad"})
"""Those that torch has a fused kernel for."""
_BLOCKS: Final = ("lisa", "badam")
"""Few layers are trained at a time."""
_TABLES: Final = (("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in"), ("lm_head", "embed_out"))
"""What families call the embedding and the output head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """States of one optimizer: ``moments`` tensors in the parameters' dtype, ``fixed`` bytes besides."""

    moments: float = 0.0
    fixed: float = 0.0
    foreach: float = 0.0
    """Parameter-sized temporaries of the foreach implementation's step."""
    single: float = 2.0
    """Temporaries of the largest parameter's size in a step that goes parameter by parameter."""
    wide: float = 0.0
    """Instead: bytes an element of the largest parameter in fp32, and as much again where it is of 16 bits."""
    paged: bool = False
    """States live in unified memory, outside the caching allocator, and move to the host under pressure."""
    keeps_grads: bool = True
    factored: float = 0.0
    """Bytes of a row's and a column's factor, which are all the state a matrix has; 0 without, -1: the parameters'."""
    low_rank: bool = False
    decomposes: bool = False
    """Takes a singular value decomposition of every matrix's gradient now and then."""
    matrices_only: bool = False
    """Serves the layers' matrices only; AdamW, in the same implementation, has the rest."""


OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    "none": Optimizer(single=0.0),
    "adamw": Optimizer(moments=2, foreach=1),
    "adamw_8bit": Optimizer(fixed=2 * _BLOCKWISE, single=0.0),
    "adamw_4bit": Optimizer(fixed=2 * (0.5 + 4 / 128), single=4.0),
    "paged_adamw": Optimizer(fixed=8, single=0.0, paged=True),
    "paged_adamw_8bit": Optimizer(fixed=2 * _BLOCKWISE, single=0.0, paged=True),
    "adafactor": Optimizer(factored=4.0, wide=8.0),
    "adafactor_torch": Optimizer(factored=-1.0, foreach=1, single=1.0),
    "sgd": Optimizer(single=0.0),
    "sgd_momentum": Optimizer(moments=1, single=0.0),
    "lion": Optimizer(fixed=4, single=0.0),
    "lion_pytorch": Optimizer(moments=1),
    "lion_8bit": Optimizer(fixed=_BLOCKWISE, single=0.0),
    "paged_lion_8bit": Optimizer(fixed=_BLOCKWISE, single=0.0, paged=True),
    "muon": Optimizer(moments=1, matrices_only=True),
    "adagrad": Optimizer(moments=1, foreach=2, single=1.0),
    "rmsprop": Optimizer(moments=1, foreach=1, single=1.0),
    "lomo": Optimizer(keeps_grads=False),
    "galore_adamw": Optimizer(moments=2, low_rank=True, decomposes=True),
    "galore_adamw_8bit": Optimizer(fixed=2 * _BLOCKWISE, low_rank=True, decomposes=True),
    "apollo_adamw": Optimizer(moments=2, low_rank=True),
}


def step_temporary_bytes(name: str, impl: str, *, each: float, trained: float, largest: float) -> float:
    """What a step allocates beside weights, gradients and states.

    :param each: bytes of one element. :param trained: trained elements on this GPU. :param largest: of one parameter.
    """
    kind = OPTIMIZERS[name]
    if impl == "fused" and name in _FUSED:
        return 0.0
    if impl == "foreach" and kind.foreach:
        return kind.foreach * trained * each
    if kind.wide:
        return min(kind.wide * largest * (2 if each < 4 else 1), 4 * kind.wide * trained)
    return min(kind.single * largest, 2 * trained) * each


def optimizer_of(method: str, name: str) -> str:
    """LLaMA-Factory and ms-swift state GaLore and APOLLO as methods, beside the optimizer that they project for."""
    return PROJECTED.get((method, name), name)


def projection_rank(job: Job, method: str) -> int:
    """GaLore's or APOLLO's rank where it is stated; 0 for their default."""
    return (stated_count(job, f"{method}_rank") or 0) if method in ("galore", "apollo") else 0


def trained_tables(job: Job) -> int:
    """How many of embedding and head PEFT trains whole (LLaMA-Factory calls it ``additional_target``)."""
    named = job.extra.get("modules_to_save") or job.extra.get("additional_target") or ()
    names = named.split(",") if isinstance(named, str) else [str(n) for n in named] if isinstance(named, list) else []
    return sum(any(word in name for name in names for word in words) for words in _TABLES) if names else 0


def state_fraction(method: str, shape: ModelShape) -> float:
    """Share of the trained parameters that has gradients and states at a time (LISA, BAdam)."""
    if method not in _BLOCKS:
        return 1.0
    # LISA trains two random layers, embedding and head at a time; BAdam one layer.
    ends = shape.embed_params + shape.head_params
    layers = shape.layer_params / shape.layer_count
    active = ends + 2 * layers if method == "lisa" else layers
    return min(1.0, active / max(1, shape.params))


def expert_adapters(job: Job, shape: ModelShape) -> str:
    """How adapters reach routed experts (:meth:`oomkb.memory.shape.ModelShape.expert_adapters`)."""
    targets = (job.lora.targets if job.lora else None) or "all-linear"
    known = transformers_of(job)
    return shape.expert_adapters(targets, fused=not known or known >= (5,))


def asks_reference(job: Job, objective: str, adapters: bool) -> bool:
    """Whether every step asks a reference model, or a teacher."""
    if objective not in ("dpo", "kto", "distill"):
        return False
    # With adapters the base model itself is the reference, whatever models stand beside it.
    return adapters or job.extra_models is None or any(m.role in ("reference", "teacher") for m in job.extra_models)
