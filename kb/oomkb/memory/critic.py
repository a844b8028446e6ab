"""PPO's critic, which is trained beside the policy: its states, and what its passes hold.

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
from oomkb.memory.activations import step_of
from oomkb.memory.estimate import Phase, merged
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.sharding import extra_of
from oomkb.memory.states import States, states_of
from oomkb.memory.step import Step


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

    def kept(self, tokens: float, square: float) -> float:
        """Bytes between its forward and its backward pass."""
        c, t, q = self.step.saved
        return c + t * tokens + q * square

    def passing(self, phase: str, tokens: float, square: float) -> float:
        """Bytes at the fullest instant of its ``forward`` or ``backward`` pass."""
        wrapped = extra_of(self.setting, self.shape, self.states)
        names = [name for name in ((phase, "loss") if phase == "forward" else (phase,)) if name in self.step.phases]
        return max(self.step.peak(name, tokens, square, wrapped)[0] for name in names)


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


def joint(s: Setting) -> bool:
    """Whether policy and critic share one backward pass."""
    return "trl" in s.framework


def held_states(s: Setting, shape: ModelShape, tokens: float) -> float:
    """Bytes of the hidden states of all layers, which a model hands out on request."""
    size = 4 if s.autocast else s.compute_bytes
    return tokens * shape.dims.hidden * size * shape.layer_count


def with_critic(
    critic: Critic,
    s: Setting,
    shape: ModelShape,
    phases: dict[str, Phase],
    kept: Mapping[str, float],
    states: States,
    tokens: float,
    square: float,
) -> dict[str, Phase]:
    """The policy's phases with those of the critic's update.

    :param kept: what stands in every phase, the critic's weights and states among it.
    """
    found = {"forward": {}, "backward": {}, "optimizer-step": {}}  # type: dict[str, Mapping[str, float]]
    for name in ("forward", "backward"):
        found[name] = merged(kept, {_TERM: critic.passing(name, tokens, square)})
    found["optimizer-step"] = merged(kept, {_TERM: critic.applied})
    together = joint(s)
    if together:
        size = 4 if s.autocast else s.compute_bytes
        hidden = held_states(s, shape, tokens)
        fresh = hidden if s.ckpt == "none" and size == _HALF else 0.0
        waiting = critic.kept(tokens, square)
        for name in ("forward", "loss", "backward"):
            if name in phases:
                phases[name] = Phase(merged(phases[name].terms_bytes, {_TERM: waiting, "activations": fresh}))
        outputs = {"logits and loss": tokens * shape.dims.vocab / s.tp * size, "activations": hidden}
        del found["forward"]
        found["backward"] = merged(found["backward"], {**outputs, "gradients": states.gradients})
        step = merged(phases["optimizer-step"].terms_bytes, outputs)
        found["optimizer-step"] = merged(step, {_TERM: critic.applied})
    for name, terms in found.items():
        phases[name] = max(phases[name], Phase(terms), key=lambda phase: phase.total_bytes)
    return phases


_TERM: Final = "critic model"
_HALF: Final = 2
