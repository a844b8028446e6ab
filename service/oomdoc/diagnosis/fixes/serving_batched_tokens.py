"""Fewer tokens per forward pass: chunked prefill in smaller pieces, a lower activation peak."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("serving.max_num_batched_tokens")
    if now is None or not context.has("serving.max_num_batched_tokens") or context.causes[:1] == ("cuda-graph",):
        return  # no prompt has been computed yet when graphs are captured
    # Without chunks a whole prompt has to fit into one pass, or the engine refuses to start.
    least = 0 if context.has("chunked") else job.prompt_len or job.get("serving.max_model_len") or 0
    for tokens in (512, 256, 128) if context.has("spills") else sorted({least, 8192, 4096, 2048}, reverse=True):
        if max(least, 1) <= tokens < now:
            yield Variant(fields={"serving.max_num_batched_tokens": tokens}, effort=0.5)


REMEDY = Remedy(
    name="serving-batched-tokens",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("activations",),
)
