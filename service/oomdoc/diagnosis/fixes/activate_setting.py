"""A memory-saving setting that is written down but not in effect: put it where it is read."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.diagnosis.fixes.all_processes import launch_line
from oomdoc.messages import Message, say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    inactive = context.facts.get("inactive", ())
    for found in inactive:
        reason = found["reason"]
        why = (
            reason
            if isinstance(reason, Message)
            else say(str(reason), **{"setting": found["setting"], **found.get("values", {})})
        )
        yield Variant(instruction=say("fixes.activate-setting.how", setting=found["setting"], why=why), effort=0.5)
    if "inactive-setting" not in context.causes[:2]:
        return
    if world_size(job) == 1 and (job.sharding or "").startswith(("zero", "fsdp")):
        line = launch_line(context.framework, max(2, (job.gpus or 1) + context.spare_gpus))
        yield Variant(instruction=say("fixes.all-processes.how", line=line), effort=0.5)
    if not inactive:
        yield Variant(instruction=say("fixes.activate-setting.check"), effort=0.5)


REMEDY = Remedy(
    name="activate-setting",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"inactive-setting"}),
    advice=True,
)
