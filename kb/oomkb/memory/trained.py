"""What a method trains beside and instead of whole matrices, and under which optimizer."""

from __future__ import annotations

from typing import Final

from oomkb.memory.job import Job
from oomkb.memory.optimizers import PROJECTED
from oomkb.memory.ranks import stated_count
from oomkb.memory.releases import transformers_of
from oomkb.memory.shape import ModelShape

_BLOCKS: Final = ("lisa", "badam")
"""Few layers are trained at a time."""


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
    return sum(any(word in name for name in names for word in words) for words in _TABLES)


_TABLES: Final = (("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in"), ("lm_head", "embed_out"))
"""What families call the embedding and the output head."""


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
