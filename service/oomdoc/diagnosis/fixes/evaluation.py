"""Evaluation that fits: one sample at a time, predictions moved off the GPU, logits reduced before they are kept.

The Trainer concatenates every batch's logits on the GPU until evaluation ends unless told otherwise (transformers
4.28-5.23, ``eval_accumulation_steps``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._lines import hf_line
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_SETTINGS: Final = {"per_device_eval_batch_size": 1, "eval_accumulation_steps": 1}


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if not context.has("eval") or not ("eval" in context.causes or context.phase == "eval"):
        return
    logits = line_of(context.framework or "transformers", "evaluation-logits")
    keeps = bool(context.facts.get("keeps_predictions")) and logits is not None
    if keeps:  # all predictions together: smaller batches only reach the same size later, and the host holds them too
        yield Variant(instruction=say("fixes.evaluation.logits", line=logits), effort=0.2)
    line = line_of(context.framework, "evaluation") or hf_line(context.framework, _SETTINGS)
    yield Variant(instruction=say("fixes.evaluation.how", line=line), effort=0.3)
    if logits is not None and not keeps:
        yield Variant(instruction=say("fixes.evaluation.logits", line=logits), effort=1.0)
    yield Variant(
        instruction=say("fixes.evaluation.loss-only", line=hf_line(context.framework, {"prediction_loss_only": True})),
        effort=0.4,
    )


REMEDY = Remedy(
    name="evaluation",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"eval"}),
    advice=True,
)
