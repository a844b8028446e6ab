"""End what else holds the GPU: stale runs, notebooks, servers, other people's jobs (ask them)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_MAX_NAMED: Final = 8
"""Processes that are named."""
_WORTHWHILE: Final = 0.2
"""Share of the card from which an engine has use for what is free."""


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "other-process" not in context.causes[:2] or context.facts.get("ranks_on_one_gpu"):
        return
    free = context.facts.get("engine_free_share")
    if free and free >= _WORTHWHILE and context.has("serving.utilization"):
        share = int(100 * free - 1) / 100
        line = f"--gpu-memory-utilization {share:.2f}"
        yield Variant(instruction=say("fixes.kill-processes.share", line=line), effort=0.2)
    holders = list(context.facts.get("holders", ()))[:_MAX_NAMED]
    if holders:
        named = [
            say("fixes.kill-processes.holder", name=command.rpartition("/")[2], pid=pid, held_bytes=held)
            for pid, command, held in holders
        ]
        yield Variant(instruction=say("fixes.kill-processes.held", holders=named), effort=0.2)
        line = f"kill {' '.join(str(pid) for pid, _, _ in holders)}"
        yield Variant(instruction=say("fixes.kill-processes.how", line=line), effort=0.3)
        yield Variant(instruction=say("fixes.kill-processes.elsewhere", line="CUDA_VISIBLE_DEVICES=1 ..."), effort=0.3)
        return
    look = "nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv"
    yield Variant(instruction=say("fixes.kill-processes.look", line=look), effort=0.2)
    pids = [int(p) for p in context.facts.get("pids", ()) if str(p).isdigit()][:8]
    line = f"kill {' '.join(map(str, pids))}" if pids else "kill PID"
    yield Variant(instruction=say("fixes.kill-processes.how", line=line), effort=0.3)
    yield Variant(instruction=say("fixes.kill-processes.elsewhere", line="CUDA_VISIBLE_DEVICES=1 ..."), effort=0.3)


REMEDY = Remedy(
    name="kill-processes",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"other-process"}),
    advice=True,
)
