"""While the engine generates, training's weights and optimizer states wait in host memory (and are synchronised in
parts).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_LINES: Final = {
    "ms-swift": "--offload_optimizer true --offload_model true --move_model_batches 16",
    "verl": "actor_rollout_ref.actor.fsdp_config.param_offload=True "
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
    "openrlhf": "--deepspeed_enable_sleep --vllm_enable_sleep",
}


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    line = _LINES.get(context.framework or "")
    shared = job.rollout is not None and job.rollout.colocated is not False
    if line is not None and shared and "rollout-engine" in context.causes[:2]:
        yield Variant(instruction=say("fixes.rollout-offload.how", line=line), effort=0.6)


REMEDY = Remedy(
    name="rollout-offload",
    safety="same-numbers",
    kinds=frozenset({"rl"}),
    variants=_variants,
    causes=frozenset({"rollout-engine"}),
    advice=True,
)
