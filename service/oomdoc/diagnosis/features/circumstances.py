"""What failed, where, and in what kind of run."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from oomdoc.diagnosis.features.sizes import bucket
from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.evidence import say
from oomkb.frameworks import ENGINES
from oomkb.memory.setting import PREFERENCE

_REINFORCEMENT: Final = frozenset({"ppo", "grpo", "rloo", "dapo", "gspo", "reinforce"})
_LENGTH_ENDS: Final = {"to-2k": 2049, "to-8k": 8193, "to-32k": 32769, "above-32k": inf}
_SIZE_ENDS: Final = {"below-1b": 1e9, "1b-4b": 4e9, "4b-9b": 9.5e9, "9b-22b": 22e9, "22b-80b": 80e9, "above-80b": inf}


def features(view: View) -> Iterator[Feature]:
    """Outcome, phase, kind of run, method and settings, and phase with memory and with kind of run."""
    yield from _failure(view)
    yield from _run(view)
    yield from _settings(view)
    memory = view.failure.kind if view.failure is not None else "none"
    yield Feature(f"at:{memory}/{view.phase}")
    yield Feature(f"at:{run_kind(view)}/{view.phase}")


def run_kind(view: View) -> str:
    """``serving`` (by an engine), ``inference`` (by other code), ``rl``, ``tuning``, ``training`` or ``unclear``.

    Only an engine sets a cache aside for its requests; a script that runs a model keeps what one call needs.
    """
    if view.serving:
        outcome = view.evidence.outcome
        engine = view.evidence.framework in ENGINES or (outcome is not None and outcome.kind == "engine")
        return "serving" if engine else "inference"
    if view.objective in _REINFORCEMENT:
        return "rl"
    if not view.training:
        return "unclear"
    return "tuning" if view.job.method in ("lora", "qlora") else "training"


def _failure(view: View) -> Iterator[Feature]:
    outcome, failure = view.evidence.outcome, view.failure
    span = (failure.signal.span,) if failure is not None else ()
    if outcome is not None:
        yield Feature(f"outcome:{outcome.kind}", 1.0, None, (outcome.span,))
        if outcome.kind == "other":
            yield Feature(f"failed:{outcome.name}", 1.0, say(f"failure.{outcome.name}.why"), (outcome.span,))
        if outcome.memory is not None:
            yield Feature(f"memory:{outcome.memory}", 1.0, None, (outcome.span,))
    elif failure is not None:
        yield Feature(f"memory:{failure.kind}", 1.0, None, span)
    if failure is not None:
        said = say("feature.message", quote=failure.signal.span.quote())
        yield Feature(f"message:{failure.signal.name}", 1.0, said, span)
    if view.phase not in ("unknown", ""):
        fact = view.evidence.facts.get("phase")
        where = (fact.span,) if fact is not None else span
        said = say("feature.phase", phase=view.phase)
        yield Feature(f"phase:{view.phase}", 1.0 if view.phase_shown else 0.6, said, where)
    else:
        yield Feature("phase:unknown")
    yield from _interval(view, failing_step(view))


def failing_step(view: View) -> int | None:
    """The last step that was done before the failure, as the message or a progress line states it."""
    if view.failure is not None and view.failure.step is not None:
        return view.failure.step
    shown = [s.data["step"] for s in view.evidence.find("progress") if "step" in s.data]
    return int(shown[-1]) if shown else None


_INTERVALS: Final = {
    "save": ("save_steps", "save_interval", "save_freq", "save_every_n_steps", "checkpointing_steps", "save_every"),
    "eval": ("eval_steps", "eval_interval", "eval_freq", "evaluation_steps", "test_freq", "val_check_interval"),
}
_SHORTEST_INTERVAL: Final = 20
"""Steps; shorter intervals end at any step by chance."""
_INTERVAL_SLACK: Final = 2


def _interval(view: View, step: int | None) -> Iterator[Feature]:
    """Whether the failing step ends an interval between evaluations or saves."""
    for kind, keys in _INTERVALS.items():
        every = view.setting(*keys)
        if step is None or not isinstance(every, int) or isinstance(every, bool) or every < _SHORTEST_INTERVAL:
            continue
        past = step % every
        if step >= every - _INTERVAL_SLACK and min(past, every - past) <= _INTERVAL_SLACK:
            yield Feature(f"interval:{kind}", 1.0, say("feature.interval", steps=every))


def _run(view: View) -> Iterator[Feature]:
    job = view.job
    yield Feature(f"run:{run_kind(view)}")
    if view.objective in PREFERENCE:
        yield Feature("objective:preference")
    elif view.objective in _REINFORCEMENT:
        yield Feature("objective:reinforcement")
    elif view.stated("objective") is not None:
        yield Feature(f"objective:{view.objective}")
    if view.stated("method") is not None:
        yield Feature(f"method:{job.method}")
    if view.stated("quant") not in (None, "none") or job.method == "qlora":
        yield Feature("weights:quantized")
    rollout = view.stated("rollout")
    if rollout is not None and not view.serving:
        yield Feature("rollout:separate" if rollout.colocated is False else "rollout:colocated")
    if job.extra_models:
        yield Feature("models:several", min(1.0, 0.5 * len(job.extra_models)))
    params = view.estimate.params if view.estimate is not None else (view.stated("params_b") or 0) * 1e9
    if params:
        yield Feature(
            f"model:{bucket(params, _SIZE_ENDS)}",
            1.0,
            say("feature.model", params_b=round(params / 1e9, 1)),
        )
    else:
        yield Feature("model:unknown")
    if reads_pictures(view):
        yield Feature("model:vision")
    if view.shape is not None and view.shape.dims.experts:
        yield Feature("model:experts")


def reads_pictures(view: View) -> bool:
    """Whether the model takes images or video, by its configuration."""
    model = view.job.model
    if isinstance(model, dict):
        return "vision_config" in model
    return view.shape is not None and view.shape.vision is not None


def _settings(view: View) -> Iterator[Feature]:
    job = view.job
    sharding = view.stated("sharding")
    if sharding is not None:
        yield Feature(f"sharding:{sharding}")
    for part in view.stated("offload") or ():
        yield Feature(f"offload:{part}")
    length = view.stated("seq_len")
    if view.training and length:
        yield Feature(f"length:{bucket(length, _LENGTH_ENDS)}")
    if view.training and view.stated("grad_ckpt") is not None:
        yield Feature(f"checkpointing:{'on' if job.grad_ckpt else 'off'}")
    if view.stated("attention") is not None:
        yield Feature(f"attention:{'eager' if job.attention == 'eager' else 'fused'}")
    ranks = view.ranks
    if ranks is not None and view.training:
        yield Feature("ranks:one" if ranks == 1 else "ranks:several")
    if view.setting("enforce_eager") is True:
        yield Feature("engine:eager")
