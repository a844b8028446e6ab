"""Parts of a job document that are mappings themselves, and what marks a value as assumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters. ``targets`` is ``"all-linear"`` or module names such as ``("q_proj", "v_proj")``."""

    r: int | None = None
    targets: str | tuple[str, ...] | None = None
    dropout: float | None = None
    dtype: str | None = None
    alpha: float | None = None
    dora: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The generation engine of an RL job and how it shares the trainer's GPUs."""

    engine: str | None = None
    colocated: bool | None = None
    gpu_memory_utilization: float | None = None
    tensor_parallel: int | None = None
    sleep: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Settings of an inference server (vLLM's names)."""

    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    concurrency: int | None = None
    """Requests of the full length that are to find their cache at once; one where nothing is said."""
    kv_dtype: str | None = None
    cuda_graphs: bool | None = None
    graph_batch: int | None = None
    """Requests of the largest batch for which a CUDA graph is captured."""
    attention_dp: bool | None = None
    """``dp`` divides the tensor-parallel group: attention is split over ``tp / dp`` cards, all else over ``tp``."""
    gpu_layers: int | None = None
    """Layers on the cards, the output counted as one more; the others and their cache lie in host memory."""
    cpu_expert_layers: int | None = None
    """Layers whose experts lie in host memory (llama.cpp ``--n-cpu-moe``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a training script of one's own does around the model (traced by ``bench/trace_loops.py``)."""

    loss: str | None = None
    """``model``: the model computes it from labels; ``script``: the script, from the logits; ``script-shifted``: from
    a contiguous copy of the logits without the last position."""
    loss_autocast: bool | None = None
    """Whether the script's loss is computed inside the autocast context, in fp32."""
    outputs_kept: bool | None = None
    """The loop's name for the model's outputs (or logits) lives until the next step's take its place."""
    use_cache: bool | None = None
    """``use_cache`` stays on while training, so that the outputs hold the keys and values of every layer."""
    zero_grad_in_place: bool | None = None
    """``zero_grad(set_to_none=False)``: gradients stay allocated through the next step's passes."""
    kbit_prepared: bool | None = None
    """PEFT's ``prepare_model_for_kbit_training`` upcasts what is not quantized to fp32."""


PARTS: Final[Mapping[str, type[Any]]] = {"lora": Lora, "rollout": Rollout, "serving": Serving, "loop": Loop}
"""Fields of a job that are such parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraModel:
    """A model resident beside the trained one."""

    role: str
    model: str | Mapping[str, Any] | None = None
    sharding: str | None = None
    offload: bool | None = None


@dataclass(frozen=True, slots=True)
class Assumption:
    """A value nobody stated: what was taken and why."""

    value: Any
    why: str
