"""While the engine generates, training's weights and optimizer states wait in host memory (and are synchronised in
parts).
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    line = line_of(context.framework, "rollout-offload")
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
