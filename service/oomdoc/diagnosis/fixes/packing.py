"""Padding-free batches: samples laid end to end without padding, so short samples stop costing the longest one's
memory.

It lowers the average, not the worst case (a batch of full-length samples), so no saving is promised for the peak:
advice.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    line = line_of(context.framework, "packing")
    if line is None or job.packing or not context.has("padding_free") or context.device is None:
        return
    if context.can("flash2") and (job.micro_batch or 1) > 1:
        yield Variant(instruction=say("fixes.packing.how", line=line), effort=0.8)


REMEDY = Remedy(
    name="packing",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"long-sample", "activations", "logits"}),
    advice=True,
)
