"""What a case's change saves: its ``before`` and ``after`` jobs, each played as a real step without a GPU.

usage: python bench/trace_cases.py CASE ...    files or ids; one row a job: peak of allocated tensors, GiB

The jobs are completed with their frameworks' defaults and played by ``oomdoc.tracing`` (full training and adapters,
DPO, FSDP), ``trace_packed.py`` (FlashAttention) or ``trace_kbit.py`` (4-bit bases). One rank is played: of plain data
parallelism without its buckets. A job with anything else that shards, offloads or splits is refused.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oomdoc.tracing.comparing import traceable
from oomdoc.tracing.running import MAKERS, trace
from oomkb.frameworks import complete
from oomkb.memory.job import Job
from oomkb.records.loader import load_cases

_NOT_PLAYED = ("offload", "tp", "pp", "cp", "sp", "ep", "fused_ce", "max_pixels")
_OFF = (None, False, 1, ())
_PLAYED = (None, "none", "ddp", "fsdp", "fsdp2")


def played(job: Job) -> dict[str, Any]:
    """What a step of the job measures.

    :raises ValueError: for a job of which a trace would leave something out.
    """
    completed = complete(job)
    odd = [name for name in _NOT_PLAYED if completed.get(name) is True or completed.get(name) not in _OFF]
    if any(extra.role != "reference" for extra in completed.extra_models or ()):
        odd.append("extra_models")
    if odd or completed.sharding not in _PLAYED or completed.grad_ckpt == "selective":
        raise ValueError(f"cannot be played: {', '.join(odd) or completed.sharding or completed.grad_ckpt}")
    document = traceable(completed).document
    if completed.optimizer in MAKERS:
        document["optimizer"] = completed.optimizer
    if completed.sharding == "fsdp":
        document |= {"sharding": "fsdp", "world": completed.world}
    if completed.method == "qlora":
        import trace_kbit

        loop = {"kbit_prepared": bool(completed.loop and completed.loop.kbit_prepared)}
        return trace_kbit.trace(document | {"loop": loop, "lora": document.get("lora") or {}})
    if completed.attention == "flash2" and completed.objective != "dpo":
        import trace_packed

        return trace_packed.trace(document)
    return trace(document)


def rows(names: set[str]) -> Iterator[dict[str, Any]]:
    """Each job of the named cases with what was measured."""
    for case in load_cases():
        if case.id in names:
            for when, job in zip(("before", "after"), case.jobs(), strict=True):
                if job is not None:
                    yield {"id": case.id, "when": when, "measured": played(job)}


def main() -> int:
    warnings.simplefilter("ignore")
    for row in rows({"/".join(Path(name).with_suffix("").parts[-2:]) for name in sys.argv[1:]}):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
