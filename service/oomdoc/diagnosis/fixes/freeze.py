"""Train only the last layers: gradients and optimizer states of the frozen ones vanish. Advice, since which layers may
be frozen is the trainer's judgement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_PLAIN: Final = "for p in model.model.layers[:-4].parameters(): p.requires_grad_(False)"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.method == "full" and job.objective != "pretrain" and context.has("freeze"):
        line = line_of(context.framework, "freeze") or _PLAIN
        yield Variant(instruction=say("fixes.freeze.how", line=line), effort=2.0)


REMEDY = Remedy(
    name="freeze",
    safety="changed-training",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"model-states", "optimizer-init"}),
    advice=True,
)
