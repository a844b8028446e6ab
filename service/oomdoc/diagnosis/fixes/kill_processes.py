"""End what else holds the GPU: stale runs, notebooks, servers, other people's jobs (ask them)."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "other-process" not in context.causes[:2] or context.facts.get("ranks_on_one_gpu"):
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
