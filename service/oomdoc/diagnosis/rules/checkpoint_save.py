"""Checkpoint saving: weights are gathered to be written or merged.

Sign
    Training runs and the failure comes at ``save_steps``, at the end, or in ``save_pretrained``, ``state_dict``,
    ``save_model`` or a merge of adapters. The first step after a save may fail instead.
Mechanism
    To write one file, ZeRO-3 and FSDP gather the whole state: 34B in 16 bit are 63 GiB, on every rank unless the
    gather is limited to rank 0 and offloaded to the CPU, where it needs as much host memory. Even saving an adapter
    alone calls the full ``state_dict()``. Blocks that the save leaves in the cache make the next step fail.
Confirm
    Save once right after loading and wrapping, before any step: it fails there too.
Fix
    Sharded checkpoints (``SHARDED_STATE_DICT``, DeepSpeed's own format) and consolidation afterwards on the CPU;
    ``offload_to_cpu`` with ``rank0_only``; ``stage3_gather_16bit_weights_on_model_save=false``; save the adapter
    only; merge on the CPU; empty the cache after saving.
Cost
    Sharded files need one conversion before use; the training itself is unchanged.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._interval import LONG, due, failing_step, returns_at
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "checkpoint-save"

_CLUES: Final = (
    Clue("phase", STRONG, phases=("save",)),
    Clue(
        "trace",
        DECISIVE,
        frames=r"save_pretrained|save_model|save_checkpoint"
        r"|(?<!load_)(?<!load_from_)(?<!['\"]sharded_)(?<!['\"]full_)state_dict\b(?! ?[,)\[=])"
        r"|_save_to_state|save_16bit"
        r"|consolidat|torch\.save"
        r"|dist_checkpoint|export_model|merge_and_unload|checkpoint_handler\.\w{0,10}sav|(?<!to)_save\b",
    ),
    Clue(
        "said",
        STRONG,
        says=r"(?:when|while|on|during|after|at|whenever|before|step of|only) (?:the )?(?:model |checkpoint "
        r"|epoch )?sav(?:e|ing)\b|sav(?:ing|es?) (?:the |a |of )?(?:model|checkpoint|weights|adapter)"
        r"|(?:model|checkpoint|adapter|it|epoch \d) (?:is|are|gets|being) saved|model save\b|saving (?:step"
        r"|runs)|save_pretrained|save_steps.{0,8}(?:时|那|步|step)|每到.{0,4}save"
        r"|(?<!正常)(?<!已经)(?<!成功)保存(?![^\n]{0,16}(?:梯度|激活"
        r"|中间)).{0,12}(?:时|模型|权重"
        r"|checkpoint"
        r"|检查点|参数|又|就|oom)"
        r"|(?:get|gets|getting|gather\w{0,3}|call\w{0,3}) (?:the )?(?:full )?state.?dict|\bcli export"
        r"|export_(?:size|dir|device)|写盘|合并(?:模型|权重|lora|时)|merg(?:e"
        r"|ing)(?!_lora_?(?:step|ckpt|\d)).{0,24}(?:adapter|lora|weights)"
        r"|export\w{0,3} (?:the )?(?:model|checkpoint)|(?:when|while|after|during|at) (?:the )?(?:writing|dumping"
        r"|exporting"
        r"|merging|consolidat\w{1,3})|(?:final|last) (?:save|checkpoint)|存(?:模型|权重|ckpt)|落盘|转换(?:权重"
        r"|checkpoint|模型)"
        r"|state.?dict[^\n]{0,40}(?:fail|oom|out of|rank ?0|gather|不够)|zero_to_fp32|async checkpoint|存(?:完|盘)"
        r"|merge script|(?:push|export|convert)\w{0,3} to (?:gguf|onnx|16|hub)|checkpoint ?(?:转换|导出)"
        r"|first checkpoint|saving at\b|writing (?:the )?(?:checkpoint|final|weights|model)"
        r"|(?:dump|write|export)s (?:the |a )?(?:model|checkpoint|weights)|(?:checkpoint|model"
        r"|file) is (?:being )?(?:written|dumped|exported)"
        r"|every save_steps|(?:writ\w{1,4}|dump\w{0,3}) (?:the |out )?(?:safetensors|shards|pickle|\.bin|\.pt)"
        r"|(?:存|写|保存) ?(?:checkpoint|ckpt|检查点|权重|模型)(?:的)?(?:那|时|这)"
        r"|saving the (?:optimizer|full|final|sharded)|export_model\b|merge_(?:lora|adapter|peft|model)(?!_?step"
        r"|_?ckpt|_?\d)\w{0,12}"
        r"|\bmerge_and"
        r"|(?:export|merge)_dir\b|(?:合并|导出)(?![^\n]{0,12}(?:后|完))[^\n]{0,12}(?:权重|模型|lora|adapter)"
        r"|model checkpointing|\bsaves (?:a |the )?(?:model|checkpoint|weights)|modelcheckpoint\b",
        unless=r"update_weights|weight[- _]sync|sync\w{0,7} (?:the )?(?:model |actor )?weights|load(?:ing|s"
        r"|ed)? (?:an? |the )?(?:full |sharded |whole )?state[ _]?dict|broadcast_from_rank0",
    ),
    Clue(
        "switched-on",
        STRONG,
        says=r"\b(?:save|consolidat|export|merge)_?\w{0,24} ?[=:] ?[\"']?true[\"'`]{0,2}[^\n]{0,60}(?:\boom\b"
        r"|out.of.memory"
        r"|爆|不足)|(?:\boom\b|out.of.memory)[^\n]{0,60}\b(?:save|consolidat|export|merge)_?\w{0,24} ?[=:] ?[\"']?true"
        r"|\bconsolidat(?:e|ing) (?:the )?(?:checkpoints?|shards?|weights|sharded|states?)|\bconsolidate\b[^\n]{0,12}"
        r"(?:->|→|\boom\b)",
    ),
    Clue(
        "adapter-written",
        STRONG,
        says=r"save_and_load\.py[^\n]{0,20}userwarning|setting `?save_embedding_layers`?"
        r"|assume that the vocabulary was not"
        r" modified|removed shared tensor",
    ),
)
_LOADS: Final = r"load_state_dict|load_checkpoint|load_model|state_dict_convert|from_pretrained|\bresume"
_WRITES: Final = r"save_|_save|torch\.save|merge|export|consolidat|get_model_state_dict"
"""What reads a state in takes the same words as what writes it out."""


_SAVED: Final = (
    r"sav(?:ed|es?|ing) (?:\w{1,12} ){0,3}(?:successfully|succeed\w{0,2}|without (?:a "
    r"|any )?(?:problem|error|issue)s?)"
    r"|successfully saved|(?:正常|已经|成功)(?:地)?保存|first,? (?:i|we) save[^\n]{0,200}|(?:保存|存盘|落盘)(?:模型"
    r"|权重|checkpoint|检查点)?(?:都|也|是)?(?:成功|正常|没问题"
    r"|没有问题)|成功保存"
)
"""What was written in full did not run out while it was written."""


_INTERVALS: Final = (
    "save_steps",
    "save_interval",
    "save_freq",
    "save_every_n_steps",
    "checkpointing_steps",
    "save_every",
)
_USUAL: Final = 500
"""Steps between saves where none are stated: ``TrainingArguments.save_steps`` of transformers and what stands on it."""


def _at_a_save(view: View) -> int | None:
    """The interval between saves that the failing step ends; the usual one where none is stated."""
    every = due(view, _INTERVALS)
    if every is not None or not view.training or view.setting(*_INTERVALS, "save_strategy") is not None:
        return every
    step = failing_step(view)
    return _USUAL if step is not None and step % _USUAL <= 1 and step >= _USUAL else None


def weigh(view: View) -> Iterator[Reason]:
    """Phase, trace and words."""
    reads = view.traces(_LOADS) is not None and view.traces(_WRITES) is None
    for reason in weigh_clues(view, CAUSE, _CLUES):
        if not (reads and reason.message.key.endswith(".trace")):
            yield reason
    every = _at_a_save(view)
    if every is not None and view.phase in ("save", "unknown"):
        stated = view.setting(*_INTERVALS) is not None
        yield Reason(
            STRONG if returns_at(view) or (stated and every >= LONG) else FAIR,
            say("cause.checkpoint-save.interval", steps=every),
        )
    if not (view.phase == "save" and view.phase_shown) and view.says(_SAVED) is not None:
        yield Reason(-STRONG, say("cause.ran-first"))
