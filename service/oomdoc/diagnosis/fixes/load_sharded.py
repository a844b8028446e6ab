"""Load the weights where they belong: in their own dtype, once, sharded or quantised from the start."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "weights-load" not in context.causes[:2] or context.serving:
        return
    dtype = "bfloat16" if context.device is None or context.can("bf16") else "float16"
    yield Variant(
        instruction=say("fixes.load-sharded.dtype", line=f"from_pretrained(..., dtype=torch.{dtype})"), effort=0.4
    )
    if job.sharding == "zero3":
        line = "training_args = TrainingArguments(..., deepspeed='ds_z3.json')  # before from_pretrained(...)"
        yield Variant(instruction=say("fixes.load-sharded.zero3", line=line), effort=0.6)
    elif world_size(job) > 1 and job.sharding in (None, "none", "ddp"):
        line = "from_pretrained(..., device_map={'': int(os.environ['LOCAL_RANK'])})"
        yield Variant(instruction=say("fixes.load-sharded.own-gpu", line=line), effort=0.5)


REMEDY = Remedy(
    name="load-sharded",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"weights-load"}),
    advice=True,
)
