"""A fused attention kernel for a script that only runs a model: what is planned by arithmetic is a training step's.

transformers 4.48-5.2 ``from_pretrained(..., attn_implementation=...)``: ``sdpa`` needs no further package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_LINE: Final = 'from_pretrained(..., attn_implementation="sdpa")'


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    first = next(iter(context.causes), "")
    if first == "attention-scores" and context.script and job.attention in (None, "eager"):
        yield Variant(instruction=say("fixes.attention-kernel.how", line=_LINE), effort=0.2)


REMEDY = Remedy(
    name="attention-kernel",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"attention-scores"}),
    advice=True,
)
