"""Saving without gathering: sharded checkpoints instead of a whole model on one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import DEEPSPEED, FSDP, is_lora
from oomdoc.diagnosis.fixes._lines import hf_line
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_DEEPSPEED: Final = '"stage3_gather_16bit_weights_on_model_save": false'
_FSDP: Final = "fsdp_state_dict_type: SHARDED_STATE_DICT"
_ADAPTER: Final = "model.save_pretrained('adapter')"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "checkpoint-save" not in context.causes and context.phase != "save":
        return
    if is_lora(job):
        yield Variant(instruction=say("fixes.save-settings.adapter", line=_ADAPTER), effort=0.3)
    need = context.facts.get("host_need")
    if need is not None and need.kind == "merge":
        return
    own = line_of(context.framework, "save-settings")
    if own is not None:
        yield Variant(instruction=say("fixes.save-settings.how", line=own), effort=0.4)
    elif job.sharding in DEEPSPEED:
        yield Variant(instruction=say("fixes.save-settings.how", line=_DEEPSPEED), effort=0.4)
        yield Variant(
            instruction=say("fixes.save-settings.convert", line="python zero_to_fp32.py . output/"), effort=0.8
        )
    elif job.sharding in FSDP:
        yield Variant(instruction=say("fixes.save-settings.how", line=_FSDP), effort=0.4)
    if context.has("save") and own is None and not is_lora(job):
        line = hf_line(context.framework, {"save_only_model": True})
        yield Variant(instruction=say("fixes.save-settings.model-only", line=line), effort=0.4)


REMEDY = Remedy(
    name="save-settings",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"checkpoint-save", "host-ram"}),
    advice=True,
)
