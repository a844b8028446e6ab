"""Models beside the trained one, and rollout engines that share its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oomkb.memory.cache import cache_bytes
from oomkb.memory.critic import Critic, critic_of
from oomkb.memory.device import Device, capacity_bytes_of
from oomkb.memory.job import ExtraModel, Job
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.states import rank_params
from oomkb.notes import Note, note
from oomkb.units import GIB, billions_with_experts

__all__ = ["ExtraMemory", "extra_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraMemory:
    """Bytes on one GPU that are not the trained model's."""

    models: Mapping[str, float]
    """By role."""
    engine: float
    """What a colocated engine reserves while it generates."""
    engine_in_training: float
    """What it keeps while the trainer runs."""
    host: float
    warnings: tuple[Note, ...]
    critic: Critic | None = None
    """A critic on this GPU that is trained beside the policy."""
    engine_short: bool = False
    """Whether the engine's stated share holds less than its weights, buffers and one sequence: it does not start."""


def extra_memory(
    job: Job, s: Setting, shape: ModelShape, device: Device | None, shapes: Mapping[str, ModelShape]
) -> ExtraMemory:
    """Extra models and the rollout engine."""
    models: dict[str, float] = {}
    warnings: list[Note] = []
    host = 0.0
    stated = job.extra_models
    if stated is None and not s.adapters and s.objective in ("dpo", "kto"):
        stated = (ExtraModel(role="reference"),)
    critic: Critic | None = None
    for extra in stated or ():
        other, warning = _shape_of(extra, shape, shapes)
        if extra.role == "critic" and s.objective == "ppo":
            critic = critic_of(s, other, extra.sharding)
            size = critic.resting
            critic = None if extra.offload else critic
        else:
            size = _extra_bytes(extra, s, other)
        if warning:
            warnings.append(warning)
        if extra.offload:
            host += size * s.gpus_per_node
        else:
            models[f"{extra.role} model"] = models.get(f"{extra.role} model", 0.0) + size
    if s.objective == "ppo" and stated is None:
        warnings.append(note("estimate.models-elsewhere"))
    engine, resting = _engine(job, s, shape, device)
    short = _is_short(job, s, shape, device) if engine else None
    return ExtraMemory(
        models=models,
        engine=engine,
        engine_in_training=resting,
        host=host,
        warnings=(*warnings, *((short,) if short else ())),
        critic=critic,
        engine_short=short is not None,
    )


def _shape_of(extra: ExtraModel, shape: ModelShape, shapes: Mapping[str, ModelShape]) -> tuple[ModelShape, Note | None]:
    other, warning = shape, None  # type: ModelShape, Note | None
    if isinstance(extra.model, Mapping):
        other = ModelShape.from_config(extra.model)
    elif isinstance(extra.model, str):
        found = shapes.get(extra.model)
        size = billions_with_experts(extra.model)
        if found is not None:
            other = found
        elif size:
            other = ModelShape.from_params_b(size)
        elif extra.model != shape.name:
            warning = note("estimate.model-unknown", role=extra.role, model=extra.model)
    return other, warning


def _extra_bytes(extra: ExtraModel, s: Setting, other: ModelShape) -> float:
    params = sum(rank_params(s, other))
    each = 2.0 if s.held_bytes == 2 or s.param_bytes == 2 else float(s.param_bytes)
    sharding = extra.sharding or (s.sharding if s.sharding in ("zero3", "fsdp", "fsdp2") else "none")
    split = s.dp * s.cp if sharding in ("zero3", "fsdp", "fsdp2", "hsdp") else 1
    return params * each / split


def _is_short(job: Job, s: Setting, shape: ModelShape, device: Device | None) -> Note | None:
    """Where an engine's share of the card is less than what it needs to start; vLLM's share counts its weights."""
    rollout, capacity = job.rollout, capacity_bytes_of(job, device)
    if rollout is None or not rollout.gpu_memory_utilization or capacity is None or s.quant != "none":
        return None
    if "rollout.gpu_memory_utilization" in job.assumed:
        return None
    split = rollout.tensor_parallel or 1
    sequence = cache_bytes(s, shape, None, float(s.seq)) * s.tp / split
    needed = shape.params * 2.0 / split + _PROFILE + sequence
    share = rollout.gpu_memory_utilization * capacity
    return note("estimate.rollout-short", needed_bytes=needed, share_bytes=share) if share < needed else None


_PROFILE: Final = 1.0 * GIB
"""Least that an engine's own first pass takes beside the weights: logits of its largest batch, and workspaces."""


def _engine(job: Job, s: Setting, shape: ModelShape, device: Device | None) -> tuple[float, float]:
    rollout = job.rollout
    if (
        rollout is None
        or rollout.colocated is False
        or (rollout.colocated is None and not rollout.gpu_memory_utilization)
    ):
        return 0.0, 0.0
    capacity = capacity_bytes_of(job, device)
    weights = shape.params * 2.0 / (rollout.tensor_parallel or 1)
    reserved = 1.3 * weights if capacity is None else capacity * (rollout.gpu_memory_utilization or 0.5)
    reserved = max(reserved, weights)
    if rollout.sleep:
        return reserved, 0.4 * GIB  # CUDA graphs and the context's share stay
    return reserved, reserved
