"""What usually runs out in a kind of job, before anything else is known.

Many reports hold a command and "OOM", and no sign of a cause. The mechanisms still rank the candidates: frozen weights
leave activations and logits, reinforcement learning has an engine beside the trainer, a server has its cache and its
weights. Each of these expectations is worth half a weak sign, so that any sign outweighs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._network import is_light, is_small, of_pictures
from oomdoc.diagnosis.view import WEAK, View
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["KINDS", "expected"]

_HALF: Final = WEAK / 2

KINDS: Final[Mapping[str, Mapping[str, float]]] = {
    "frozen": {"activations": 1.0, "logits": 1.0, "long-sample": 1.0, "checkpoint-save": 0.5},
    "quantized": {"weights-load": 1.0},
    "pairs": {"logits": 1.0, "extra-models": 1.0, "long-sample": 1.0},
    "rollouts": {"rollout-engine": 1.0, "logits": 0.5, "activations": 0.5, "extra-models": 0.5},
    "server": {"kv-cache": 1.0, "weights-load": 1.0, "cuda-graph": 0.5, "hardware-limit": 0.5},
    "metal": {"hardware-limit": 1.0, "leak": 1.0, "weights-load": 0.5},
    "untold": {"activations": 1.0, "attention-scores": 1.0, "weights-load": 0.5, "leak": 0.5, "fragmentation": 0.5},
    "brim": {"model-states": 1.0, "activations": 1.0, "weights-load": 1.0},
    "small": {
        "activations": 1.5,
        "eval": 1.0,
        "hardware-limit": 1.0,
        "leak": 1.0,
        "long-sample": 1.0,
        "other-process": 1.0,
        "inactive-setting": -1.0,
        "kv-cache": -2.0,
        "optimizer-init": -2.0,
        "weights-load": -2.0,
        "extra-models": -4.0,
        "rollout-engine": -4.0,
        "vision-tokens": -4.0,
        "zero3-gather": -4.0,
        "logits": -5.0,
        "model-states": -7.0,
    },
    "light": {"activations": 1.0, "logits": 1.0, "weights-load": -2.0, "model-states": -3.0},
    "pictures": {"activations": 1.9, "eval": 1.0},
}
"""Kind of job -> cause -> share of half a weak sign. ``untold``: neither training nor serving is said; ``brim``: a
full card refused a tiny request, so it is what fills the card that counts, not the tensor that failed; ``small``: no
large language model is named, and of 228 such threads none was of optimizer states, two of a vocabulary; ``pictures``:
of these, networks of pictures, sound or points, of whose 132 threads a quarter were of their layers; ``light``: a
language model below 0.7 billion parameters."""
_BRIM: Final = 0.85
_TINY: Final = 0.01


def expected(view: View) -> Iterator[tuple[str, Reason]]:
    """(cause, reason) for each kind of job that this is; nothing where no device ran out."""
    if view.failure is not None and view.failure.kind != "device":
        return
    for kind in _kinds(view) if view.failure is not None else _networks(view):
        for cause, share in KINDS[kind].items():
            yield cause, Reason(_HALF * share, say(f"cause.usual.{kind}"))


def _of_training(job: Job) -> Iterator[str]:
    if job.objective in ("grpo", "ppo"):
        yield "rollouts"
    elif job.objective in ("dpo", "kto", "orpo", "simpo"):
        yield "pairs"
    elif job.method in ("lora", "qlora"):
        yield "frozen"
    if job.method == "qlora":
        yield "quantized"


def _networks(view: View) -> Iterator[str]:
    if is_small(view):
        yield "small"
        if of_pictures(view):
            yield "pictures"
    elif is_light(view):
        yield "light"


def _kinds(view: View) -> Iterator[str]:
    if view.training:
        yield from _of_training(view.job)
    if view.failure is not None and view.failure.signal.name == "mps-oom":
        yield "metal"
    if view.serving:
        yield "server"
    elif not view.training:
        yield "untold"
    yield from _networks(view)
    requested, allocated, capacity = (view.bytes_of(name) for name in ("requested", "allocated", "capacity"))
    if requested and allocated and capacity and requested < _TINY * capacity and allocated >= _BRIM * capacity:
        yield "brim"
