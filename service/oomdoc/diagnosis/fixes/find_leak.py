"""A leak: memory that grows with the steps is held by something; settings only move the step at which it fails."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import ENGINES
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "leak" not in context.causes[:2]:
        return
    if not context.serving:
        yield Variant(instruction=say("fixes.find-leak.detach", line="total += loss.item()"), effort=1.0)
    elif context.framework not in ENGINES:  # an engine keeps no graph
        line = "with torch.inference_mode(): out = model(**inputs)"
        yield Variant(instruction=say("fixes.find-leak.no-grad", line=line), effort=0.3)
    snapshot = "torch.cuda.memory._record_memory_history(); ...; torch.cuda.memory._dump_snapshot('oom.pickle')"
    yield Variant(instruction=say("fixes.find-leak.snapshot", line=snapshot), effort=1.5)
    yield Variant(
        instruction=say("fixes.find-leak.watch", line="print(torch.cuda.memory_allocated() >> 20, 'MiB')"), effort=0.5
    )


REMEDY = Remedy(
    name="find-leak",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"leak"}),
    advice=True,
)
