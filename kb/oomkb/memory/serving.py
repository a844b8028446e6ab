"""Inference: weights, key/value cache, the largest batch's activations, CUDA graphs, and what engines reserve.

vLLM (0.33 ``v1/worker/gpu_worker.py``): the pool is ``total x gpu_memory_utilization`` less everything else.
SGLang: ``mem_fraction_static`` covers weights and pool; activations and graphs come on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oomkb.memory.activations import step_of
from oomkb.memory.device import Device, capacity_bytes_of
from oomkb.memory.job import Job
from oomkb.memory.setting import BYTES, Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.states import weight_bytes
from oomkb.units import GIB, MIB

__all__ = ["ServingBytes", "kv_bytes_per_token", "largest_max_model_len", "serving_bytes"]

_ENGINES: Final = ("vllm", "sglang", "lmdeploy", "tgi", "tensorrt", "trtllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBytes:
    """What one GPU of an inference engine holds."""

    weights: float
    activations: float
    graphs: float
    kv_pool: float
    kv_needed: float
    """For one sequence of ``max_model_len`` tokens."""
    largest_len: int | None
    """Longest sequence the pool holds; ``None`` where the capacity is not known."""
    warnings: tuple[str, ...] = ()


def kv_element_bytes(s: Setting, kv_dtype: str | None) -> float:
    """Bytes of one element of the cache."""
    word = (kv_dtype or "auto").lower()
    if word.startswith(("fp8", "int8", "e4m3", "e5m2")):
        return 1.0
    if word.startswith(("int4", "nvfp4", "fp4", "q4")):
        return 0.5
    return BYTES.get(word, 2.0) if word != "auto" else min(2.0, float(s.param_bytes))


def kv_bytes_per_token(
    s: Setting, shape: ModelShape, kv_dtype: str | None = None, *, window_len: int | None = None
) -> float:
    """Cache of one token on one GPU, over all layers; ``window_len``: sequence length, to cap windowed layers."""
    d = shape.dims
    each = kv_element_bytes(s, kv_dtype)
    per_layer = d.kv_elements_per_token / (1 if d.kv_lora_rank else min(s.tp, d.kv_heads))
    layers = 0.0
    for layer in shape.layers:
        share = float(layer.caches)
        if layer.window and window_len:
            share *= min(1.0, layer.window / window_len)
        layers += layer.count * share
    return per_layer * each * layers / s.pp


def serving_bytes(job: Job, s: Setting, shape: ModelShape, device: Device | None) -> ServingBytes:
    """Weights, pool and activations of an engine, or of a plain ``generate`` call."""
    want = job.serving
    engine = s.framework.split()[0] if s.framework else ""
    weights = weight_bytes(s, shape, float(min(s.param_bytes, 2) if engine in _ENGINES else s.param_bytes))
    length = (want.max_model_len if want else None) or job.seq_len or min(shape.dims.max_positions or 8192, 32768)
    seqs = (want.max_num_seqs if want else None) or (job.micro_batch or 1)
    kv_dtype = want.kv_dtype if want else None
    per_token = kv_bytes_per_token(s, shape, kv_dtype, window_len=length)
    served = want is not None or any(e in s.framework for e in _ENGINES)
    tokens = (want.max_num_batched_tokens if want else None) or (
        max(2048, min(length, 8192)) if served else s.batch * length
    )
    activations = step_of(s, shape).peak("forward", float(tokens), 0.0)[0]
    activations += (min(seqs, 256) if served else s.batch) * shape.dims.vocab / s.tp * 10
    if not served:
        return ServingBytes(
            weights=weights,
            activations=activations,
            graphs=0.0,
            kv_pool=per_token * length * s.batch,
            kv_needed=per_token * length,
            largest_len=None,
        )
    graphs = 0.0 if want and want.cuda_graphs is False else (0.35 + 0.012 * shape.layer_count / s.pp) * GIB
    utilization = (want.gpu_memory_utilization if want else None) or 0.9
    capacity = capacity_bytes_of(job, device)
    needed = per_token * length
    if capacity is None:
        return ServingBytes(
            weights=weights,
            activations=activations,
            graphs=graphs,
            kv_pool=needed * seqs,
            kv_needed=needed,
            largest_len=None,
        )
    outside = (450 + (400 if s.tp > 1 else 0)) * MIB
    budget = capacity * utilization - weights - (0.0 if "sglang" in s.framework else activations + outside)
    pool = max(0.0, budget)
    largest = int(pool / per_token) if per_token else None
    warnings: tuple[str, ...] = ()
    if budget < needed:
        warnings = (
            f"one sequence of {length} tokens needs {needed / GIB:.2f} GiB of cache, {pool / GIB:.2f} GiB are left: "
            f"the largest max_model_len that fits is {max(0, (largest or 0) // 16 * 16)}",
        )
    return ServingBytes(
        weights=weights,
        activations=activations,
        graphs=graphs,
        kv_pool=pool,
        kv_needed=needed,
        largest_len=largest,
        warnings=warnings,
    )


def largest_max_model_len(job: Job, s: Setting, shape: ModelShape, device: Device | None) -> int | None:
    """The longest ``max_model_len`` the engine's pool can hold, ``None`` where no capacity is known."""
    found = serving_bytes(job, s, shape, device).largest_len
    return None if found is None else found // 16 * 16
