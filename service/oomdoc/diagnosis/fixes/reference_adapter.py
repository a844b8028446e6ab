"""With adapters, the base model with the adapter switched off *is* the reference: a second copy is waste."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._extra import find, without
from oomdoc.diagnosis.fixes._job import is_lora
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


_LINE: Final = "ref_model=None, peft_config=peft_config"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    reference = find(job, "reference")
    own = any(m.model is not None and m.model != job.model for m in reference)
    if is_lora(job) and reference and not own and (context.has("lora")):
        note = say("fixes.reference-adapter.how", line=line_of(context.framework, "reference-adapter") or _LINE)
        yield Variant(fields={"extra_models": without(job, "reference")}, effort=0.5, notes=(note,))


REMEDY = Remedy(
    name="reference-adapter",
    safety="same-numbers",
    kinds=frozenset({"preference", "rl"}),
    variants=_variants,
    reduces=("reference", "extra"),
)
