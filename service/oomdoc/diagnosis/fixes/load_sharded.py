"""Load the weights where they belong: in their own dtype, once, sharded or quantised from the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._lines import ZERO_FIRST
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


_SET_DEVICE: Final = "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"
_STORAGE: Final = "BitsAndBytesConfig(load_in_4bit=True, ..., bnb_4bit_quant_storage=dtype_of_the_model)"
"""FSDP shards packed 4-bit weights since bitsandbytes 0.43; DeepSpeed's engine leaves them whole on every GPU."""


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "optimizer-init" in context.causes[:1] and context.phase == "load":
        line = "torch.load('optimizer.pt', map_location='cpu')"
        yield Variant(instruction=say("fixes.load-sharded.states", line=line), effort=0.5)
        return
    if context.facts.get("ranks_on_one_gpu"):
        yield Variant(instruction=say("fixes.load-sharded.own-gpu", line=_SET_DEVICE), effort=0.3)
        line = "torch.load(path, map_location='cpu')"
        yield Variant(instruction=say("fixes.load-sharded.own-load", line=line), effort=0.3)
        return
    if "weights-load" not in context.causes[:2] or context.serving:
        return
    four_bit = job.quant in ("nf4", "nf4-double", "int8")
    if four_bit and job.sharding == "zero3":
        line = line_of(context.framework, "load-sharded") or _STORAGE
        yield Variant(instruction=say("fixes.load-sharded.four-bit", line=line), effort=1.0)
        return
    dtype = "bfloat16" if context.device is None or context.can("bf16") else "float16"
    if not four_bit:
        line = f"from_pretrained(..., torch_dtype=torch.{dtype})"
        yield Variant(instruction=say("fixes.load-sharded.dtype", line=line), effort=0.4)
    if job.sharding == "zero3":
        yield Variant(instruction=say("fixes.load-sharded.zero3", line=ZERO_FIRST), effort=0.6)
    elif world_size(job) > 1 and job.sharding in (None, "none", "ddp"):
        line = "from_pretrained(..., device_map={'': int(os.environ['LOCAL_RANK'])})"
        yield Variant(instruction=say("fixes.load-sharded.own-gpu", line=line), effort=0.5)


REMEDY = Remedy(
    name="load-sharded",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"optimizer-init", "weights-load", "other-process"}),
    advice=True,
)
