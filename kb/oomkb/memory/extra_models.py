"""Models beside the trained one, and rollout engines that share its GPUs.

PPO's critic, which is trained beside the policy: its states, and what its passes hold.

A decoder with one number a token for an output. verl and OpenRLHF update policy and critic one after the other
(``workers/critic/dp_critic.py``, ``trainer/ray/ppo_critic.py``): while one runs, of the other there are weights and
optimizer states. TRL's trainer (``experimental/ppo/ppo_trainer.py``, 1.10) wraps both in one module: the critic's pass,
the policy's, one backward pass, one optimizer; the policy's output, logits and hidden states with it, lives until the
step is over. Followed in ``bench/trace_ppo.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import Note, note
from oomkb.memory.activations import step_of
from oomkb.memory.cache import cache_bytes
from oomkb.memory.device import Device, capacity_bytes_of
from oomkb.memory.estimate import Phase, fuller, merged
from oomkb.memory.job import ExtraModel, Rollout
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.sharding import extra_of
from oomkb.memory.states import States, rank_params, states_of
from oomkb.memory.step import Step
from oomkb.units import GIB, billions_with_experts

_PROFILE: Final = 1.0 * GIB
"""Least that an engine's own first pass takes beside the weights: logits of its largest batch, and workspaces."""
_TERM: Final = "critic model"
_HALF: Final = 2


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


def extra_memory(s: Setting, shape: ModelShape, device: Device | None, shapes: Mapping[str, ModelShape]) -> ExtraMemory:
    """Extra models and the rollout engine."""
    job = s.job
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
    halved = s.autocast and (s.job.planned or "framework" in s.job.assumed)  # frozen weights of a run nobody wrote yet
    each = 2.0 if halved or s.held_bytes == 2 or s.param_bytes == 2 else float(s.param_bytes)
    sharding = extra.sharding or (s.sharding if s.sharding in ("zero3", "fsdp", "fsdp2") else "none")
    split = s.dp * s.cp if sharding in ("zero3", "fsdp", "fsdp2", "hsdp") else 1
    return params * each / split


def _shortage(s: Setting, shape: ModelShape, weights: float, share: float, split: int) -> list[Note]:
    """Where an engine's share of the card is less than what it needs to start; vLLM's share counts its weights."""
    needed = weights + _PROFILE + cache_bytes(s, shape, None, float(s.seq)) * s.tp / split
    short = s.quant == "none" and share < needed
    return [note("estimate.rollout-short", needed_bytes=needed, share_bytes=share)] if short else []


@dataclass(frozen=True, slots=True)
class Critic:
    """A critic on one GPU."""

    setting: Setting
    shape: ModelShape
    states: States
    step: Step

    @property
    def resting(self) -> float:
        """Bytes between its updates: weights and optimizer states."""
        s = self.states
        return s.weights + s.adapters + s.optimizer + s.masters + s.buckets

    @property
    def applied(self) -> float:
        """Bytes of its gradients, and of what the optimizer's step makes of them."""
        return self.states.reduced + self.states.step

    def passing(self, phase: str) -> float:
        """Bytes at the fullest instant of its ``forward`` or ``backward`` pass."""
        wrapped = extra_of(self.setting, self.shape, self.states)
        names = [name for name in ((phase, "loss") if phase == "forward" else (phase,)) if name in self.step.phases]
        return max(self.step.peak(name, self.setting.tokens, self.setting.square, wrapped)[0] for name in names)


def critic_of(s: Setting, shape: ModelShape, sharding: str | None = None) -> Critic:
    """The critic of a run with the setting ``s``; ``shape`` is that of the model that it is made from."""
    config: Mapping[str, object] = {**shape.config, "tie_word_embeddings": True}
    own = ModelShape.from_config(config, name=shape.name) if shape.config else shape
    adapters = s.adapters and "openrlhf" in s.framework  # ``lora_rank`` is the critic's, too
    changes: dict[str, Any] = (
        {} if adapters else {"adapters": False, "method": "full", "quant": "none", "tables": 0, "rank": 0}
    )
    if not adapters:
        changes |= {"targets": (), "expert_adapters": "none", "quant_keeps": False, "outlived": False}
    if sharding:
        changes["sharding"] = sharding
    setting = replace(s, objective="rm", style="", fused_ce=False, logits_share=1.0, reference=False, **changes)
    return Critic(setting, own, states_of(setting, own), step_of(setting, own))


def with_critic(
    critic: Critic, shape: ModelShape, phases: dict[str, Phase], kept: Mapping[str, float], states: States
) -> dict[str, Phase]:
    """The policy's phases with those of the critic's update.

    :param kept: what stands in every phase, the critic's weights and states among it.
    """
    s = critic.setting
    own = {name: critic.passing(name) for name in ("forward", "backward")}
    found = {n: merged(kept, {_TERM: size}) for n, size in {**own, "optimizer-step": critic.applied}.items()}
    if "trl" in s.framework:  # policy and critic share one backward pass
        size = 4 if s.autocast else s.compute_bytes
        hidden = s.tokens * shape.dims.hidden * size * shape.layer_count  # of all layers, handed out on request
        fresh = hidden if s.ckpt == "none" and size == _HALF else 0.0
        waiting = critic.step.saved_bytes(s.tokens, s.square)
        for name in ("forward", "loss", "backward"):
            if name in phases:
                phases[name] = Phase(merged(phases[name].terms_bytes, {_TERM: waiting, "activations": fresh}))
        outputs = {"logits and loss": s.tokens * shape.dims.vocab / s.tp * size, "activations": hidden}
        del found["forward"]
        found["backward"] = merged(found["backward"], {**outputs, "gradients": states.gradients})
        step = merged(phases["optimizer-step"].terms_bytes, outputs)
        found["optimizer-step"] = merged(step, {_TERM: critic.applied})
    for name, terms in found.items():
        phases[name] = fuller(phases[name], Phase(terms))
    return phases
