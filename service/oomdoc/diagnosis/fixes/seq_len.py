"""Shorter samples: everything per token shrinks, attention scores with the square.

What is cut off is not learned from, so this changes the training; packing what is left keeps the throughput.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import is_rl
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_MIN_LENGTH = 256
_EFFORTS = (0.5, 1.5, 4.0, 8.0)
"""What is left of a quarter or an eighth of each sample is seldom what the data are for: what is milder comes first."""


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    length = job.seq_len
    # With rollouts the length is prompt plus completion: see completion_len.
    if length is None or not context.has("seq_len") or (is_rl(job) and job.completion_len):
        return
    note = say("fixes.seq-len.note", seq_len=length)
    three_quarters = length * 3 // 4 // 128 * 128
    for shorter, effort in zip((three_quarters, length // 2, length // 4, length // 8), _EFFORTS, strict=True):
        if _MIN_LENGTH <= shorter < length:
            yield Variant(fields={"seq_len": shorter}, effort=effort, notes=(note,))


REMEDY = Remedy(
    name="seq-len",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("logits", "activations", "attention", "recomputed"),
)
