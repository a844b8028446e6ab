"""Fewer tokens in a micro-batch that is filled by tokens: more micro-batches, the same global batch.

verl's ``ppo_max_token_len_per_gpu``, slime's ``max-tokens-per-gpu``. The longest sample has to fit whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.micro_tokens
    longest = max(job.seq_len or 0, (job.prompt_len or 0) + (job.completion_len or 0))
    if now is None or longest == 0:
        return
    for step, fewer in enumerate((now // 2, now // 4, longest)):
        if longest <= fewer < now:
            yield Variant(fields={"micro_tokens": fewer}, effort=0.3 + 0.1 * step)


REMEDY = Remedy(
    name="micro-tokens",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("logits", "activations", "attention", "recomputed"),
)
