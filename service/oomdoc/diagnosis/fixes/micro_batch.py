"""Fewer samples at a time, more accumulation steps: the same global batch, a smaller peak.

Everything that grows with the tokens in flight (activations, logits, attention scores) shrinks in proportion; weights,
gradients and optimizer states do not. The planner raises ``grad_accum`` so that the global batch stays what it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    size = job.micro_batch
    if size is None or size <= 1 or job.micro_tokens or not context.has("micro_batch"):
        return
    # Only divisors keep the global batch exactly.
    for smaller in range(size - 1, 0, -1):
        if size % smaller == 0:
            yield Variant(fields={"micro_batch": smaller}, effort=0.3)


REMEDY = Remedy(
    name="micro-batch",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("logits", "activations", "attention", "recomputed"),
)
