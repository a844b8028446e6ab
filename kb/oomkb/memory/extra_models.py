"""Models beside the trained one, and rollout engines that share its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.cache import cache_bytes
from oomkb.memory.critic import Critic, critic_of
from oomkb.memory.device import Device, capacity_bytes_of
from oomkb.memory.job import ExtraModel, Job, Rollout
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.states import rank_params
from oomkb.notes import Note, note
from oomkb.units import GIB, billions_with_experts


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
    engine_weights: float = 0.0


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
        other = extra_shape(extra, shapes)
        if other is None:
            other = shape
            if extra.model and extra.model != shape.name:
                warnings.append(note("estimate.model-unknown", role=extra.role, model=extra.model))
        if extra.role == "critic" and s.objective == "ppo":
            critic = critic_of(s, other, extra.sharding)
            size = critic.resting
            critic = None if extra.offload else critic
        else:
            size = _extra_bytes(extra, s, other)
        if extra.offload:
            host += size * s.gpus_per_node
        else:
            models[f"{extra.role} model"] = models.get(f"{extra.role} model", 0.0) + size
    if s.objective == "ppo" and stated is None:
        warnings.append(note("estimate.models-elsewhere"))
    rollout, weights, engine, resting = job.rollout, 0.0, 0.0, 0.0
    if rollout is not None and _is_colocated(rollout):
        capacity = capacity_bytes_of(job, device)
        weights = shape.params * 2.0 / (rollout.tensor_parallel or 1)
        share = rollout.gpu_memory_utilization
        engine = max(weights, 1.3 * weights if capacity is None else capacity * (share or 0.5))
        resting = 0.4 * GIB if rollout.sleep else engine  # CUDA graphs and the context's share stay
        if capacity is not None and share and "rollout.gpu_memory_utilization" not in job.assumed:
            warnings += _shortage(s, shape, weights, share * capacity, rollout.tensor_parallel or 1)
    return ExtraMemory(
        models=models,
        engine=engine,
        engine_in_training=resting,
        host=host,
        warnings=tuple(warnings),
        critic=critic,
        engine_weights=weights,
    )


def _is_colocated(rollout: Rollout) -> bool:
    return rollout.colocated is True or (rollout.colocated is None and bool(rollout.gpu_memory_utilization))


def extra_shape(extra: ExtraModel, shapes: Mapping[str, ModelShape]) -> ModelShape | None:
    """The shape of a model that is described, known, or has its size in its name."""
    if isinstance(extra.model, Mapping):
        return ModelShape.from_config(extra.model)
    if not extra.model or extra.model in shapes:
        return shapes.get(extra.model or "")
    size = billions_with_experts(extra.model)
    return ModelShape.from_params_b(size) if size else None


def _extra_bytes(extra: ExtraModel, s: Setting, other: ModelShape) -> float:
    params = sum(rank_params(s, other))
    each = 2.0 if s.held_bytes == 2 or s.param_bytes == 2 else float(s.param_bytes)
    sharding = extra.sharding or (s.sharding if s.sharding in ("zero3", "fsdp", "fsdp2") else "none")
    split = s.dp * s.cp if sharding in ("zero3", "fsdp", "fsdp2", "hsdp") else 1
    return params * each / split


def _shortage(s: Setting, shape: ModelShape, weights: float, share: float, split: int) -> list[Note]:
    """Where an engine's share of the card is less than what it needs to start; vLLM's share counts its weights."""
    needed = weights + _PROFILE + cache_bytes(s, shape, None, float(s.seq)) * s.tp / split
    short = s.quant == "none" and share < needed
    return [note("estimate.rollout-short", needed_bytes=needed, share_bytes=share)] if short else []


_PROFILE: Final = 1.0 * GIB
"""Least that an engine's own first pass takes beside the weights: logits of its largest batch, and workspaces."""
