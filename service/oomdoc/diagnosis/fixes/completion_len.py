"""Shorter completions: rollouts and everything computed on them shrink; long answers are cut off."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.completion_len
    if now is None or not context.has("completion_len"):
        return
    for step, shorter in enumerate((now // 2, now // 4), start=1):
        if shorter >= 128:
            fields: dict[str, object] = {"completion_len": shorter}
            if job.seq_len and job.prompt_len and job.seq_len == job.prompt_len + now:
                fields["seq_len"] = job.prompt_len + shorter
            yield Variant(fields=fields, effort=float(step))


REMEDY = Remedy(
    name="completion-len",
    safety="changed-training",
    kinds=frozenset({"rl"}),
    variants=_variants,
    reduces=("logits", "activations", "attention", "recomputed"),
)
