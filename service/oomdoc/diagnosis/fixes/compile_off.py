"""Compilation and CUDA graphs off while training: captured graphs keep private pools, autotuning needs workspace."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._lines import hf_line
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "cuda-graph" not in context.causes[:2]:
        return
    if job.objective in ("grpo", "ppo") or job.rollout is not None:
        line = line_of(context.framework, "eager-rollout") or "enforce_eager=True"
        yield Variant(instruction=say("fixes.compile-off.eager", line=line), effort=0.3)
    elif job.compile:
        line = line_of(context.framework, "compile-off") or hf_line(context.framework, {"torch_compile": False})
        yield Variant(instruction=say("fixes.compile-off.how", line=line), effort=0.3)


REMEDY = Remedy(
    name="compile-off",
    safety="same-numbers",
    kinds=frozenset({"training", "rl"}),
    variants=_variants,
    causes=frozenset({"cuda-graph"}),
    advice=True,
)
