"""Host memory: more of it for the container or job, or less put into it.

What fills it: one copy of the model per rank while loading, offloaded states, pinned buffers, data-loader workers
that copy the data set, checkpoints gathered for saving.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._lines import hf_line
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "host-ram" not in context.causes[:2]:
        return
    offload = job.offload or ()
    if "param" in offload:
        yield Variant(instruction=say("fixes.host-memory.param", line='remove "offload_param"'), effort=0.4)
    elif "optimizer" in offload:
        yield Variant(instruction=say("fixes.host-memory.optimizer", line='remove "offload_optimizer"'), effort=0.4)
    if offload:
        yield Variant(instruction=say("fixes.host-memory.pinned", line='"pin_memory": false'), effort=0.3)
    if context.phase in ("load", "unknown") and not context.serving:
        yield Variant(instruction=say("fixes.host-memory.load", line=_load_line(job, context)), effort=0.6)
    if not context.serving:
        line = hf_line(context.framework, {"dataloader_num_workers": 0, "dataloader_pin_memory": False})
        yield Variant(instruction=say("fixes.host-memory.workers", line=line), effort=0.4)
    yield Variant(
        instruction=say("fixes.host-memory.limit", line="docker run --memory=... / #SBATCH --mem=0"), effort=0.6
    )


def _load_line(job: Job, context: Context) -> str:
    if job.sharding in ("fsdp", "fsdp2", "hsdp"):
        return "fsdp_cpu_ram_efficient_loading: true"
    if job.sharding == "zero3":
        return "TrainingArguments(deepspeed=...) before from_pretrained(...)"
    return "from_pretrained(..., low_cpu_mem_usage=True, dtype='bfloat16')"


REMEDY = Remedy(
    name="host-memory",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"host-ram"}),
    advice=True,
)
