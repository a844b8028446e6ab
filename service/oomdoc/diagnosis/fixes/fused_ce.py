"""A fused or chunked loss: logits of all tokens times all words are never whole in memory.

Liger's fused linear cross-entropy, cut cross-entropy, chunked losses. Where the trainer itself reads the logits
(preference losses in most frameworks), there is no such switch, and none is proposed. Hsu et al. 2024, "Liger
Kernel"; Wijmans et al. 2024, "Cut Your Losses".
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import is_lora, is_preference, is_rl
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.fused_ce or not _worth_it(job, context):
        return
    feature = "fused_ce.rl" if is_rl(job) else "fused_ce.preference" if is_preference(job) else "fused_ce"
    if context.has(feature):
        yield Variant(fields={"fused_ce": True}, effort=0.8)


def _worth_it(job: Job, context: Context) -> bool:
    """A trained head needs a gradient buffer of words x width: more than the logits of few tokens."""
    if context.shape is None or is_lora(job):
        return True
    return (job.micro_batch or 1) * (job.seq_len or 2048) >= context.shape.dims.hidden


REMEDY = Remedy(
    name="fused-ce",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("logits", "loss"),
)
