"""Compute logits only for the tokens that carry a loss: the prompt's logits are never needed.

How much it saves depends on the share of prompt tokens, which the job does not tell: advice with the setting's name.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import is_preference
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    line = line_of(context.framework, "logits-to-keep")
    if line is None or job.fused_ce or not context.has("logits_to_keep"):
        return
    # TRL has the switch in DPO alone, and only up to 0.28.
    if context.framework == "trl" and (not is_preference(job) or not _before(context.versions.get("trl"), "0.29")):
        return
    yield Variant(instruction=say("fixes.logits-to-keep.how", line=line), effort=0.5)


def _before(version: str | None, limit: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return version is not None and Version(version) < Version(limit)
    except InvalidVersion:
        return False


REMEDY = Remedy(
    name="logits-to-keep",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"logits"}),
    advice=True,
)
