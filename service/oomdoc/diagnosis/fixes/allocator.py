"""Allocator settings, when and only when fragmentation explains the failure.

``expandable_segments`` lets PyTorch (2.1 and later) grow its blocks instead of stranding them; before that,
``max_split_size_mb`` keeps large blocks from being cut up. Neither makes a job smaller, so neither is offered where
the memory is really full. PyTorch notes on CUDA memory management.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_NAME = "PYTORCH_CUDA_ALLOC_CONF"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    conf = " ".join(v for k, v in job.env.items() if k.endswith("ALLOC_CONF"))
    if not context.fragmentation or context.serving:
        return
    old = _before(context.versions.get("torch"), "2.1")
    # vLLM's sleeping engine keeps its memory in a pool that expandable segments break.
    sleeps = job.get("rollout.sleep") is True
    if old or sleeps:
        if "max_split_size_mb" not in conf:
            yield Variant(
                instruction=say("fixes.allocator.how", line=f"export {_NAME}=max_split_size_mb:128"), effort=0.3
            )
    elif "expandable_segments:true" not in conf.lower():
        yield Variant(
            instruction=say("fixes.allocator.how", line=f"export {_NAME}=expandable_segments:True"), effort=0.2
        )


def _before(version: str | None, limit: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return version is not None and Version(version) < Version(limit)
    except InvalidVersion:
        return False


REMEDY = Remedy(
    name="allocator",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"fragmentation"}),
    advice=True,
)
