"""What looks like running out of memory and is not: a kernel that wants more on-chip memory than the card has, a full
disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "not-oom" not in context.causes[:1]:
        return
    kind = context.facts.get("look_alike")
    if kind == "triton":
        yield Variant(instruction=say("fixes.not-memory.triton", line="num_stages=1"), effort=1.0)
    elif kind == "disk":
        yield Variant(instruction=say("fixes.not-memory.disk", line="df -h"), effort=0.3)
    else:
        yield Variant(instruction=say("fixes.not-memory.first", line="CUDA_LAUNCH_BLOCKING=1 ..."), effort=0.5)


REMEDY = Remedy(
    name="not-memory",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"not-oom"}),
    advice=True,
)
