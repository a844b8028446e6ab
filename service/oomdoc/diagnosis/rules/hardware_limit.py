"""Hardware limit: the job cannot fit this machine under any setting.

Sign
    All saving measures are on already, or the smallest possible form of the model is larger than all cards
    together. A recipe for eight cards is run on one.
Mechanism
    Some bytes cannot be avoided: 4-bit weights are 0.55 bytes per parameter, full training with a sharded optimizer
    16 bytes divided by the GPUs that are there: 7B on 96 GB in all does not fit without offload (108 GB).
Confirm
    Compute the smallest form, parameters x 0.55 bytes / GPUs plus one sample's activations, and compare.
Fix
    A smaller model, more or larger cards, CPU or NVMe offload with the time it takes, QLoRA where full training was
    meant.
Cost
    Money or time; no setting helps.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "hardware-limit"

_CLUES: Final = (
    Clue(
        "asked",
        STRONG,
        says=r"min(?:imum|imal) (?:hardware|system|requirement|vram|gpu|memory)|(?:hardware|system) requirement"
        r"|(?:which|what) (?:gpu|hardware|card|approach)|is there an alternative|最低(?:显存|配置|要求)"
        r"|设备条件|最小显存"
        r"|要多大|需要(?:多少|多大)"
        r"|biggest model|what are the memory requirements|(?:需要|要)几张卡|最低要|更?小一点的模型|更大的卡"
        r"|recommended (?:hardware|gpu|spec|config)|显存(?:需求|要求)(?:表|是|如何|怎么|有多)|need (?:more|bigger"
        r"|larger) gpus?\b",
    ),
    Clue(
        "possible",
        WEAK,
        says=r"is (?:one|a|it|this|\d) .{0,40}(?:enough|possible|sufficient)|how (?:much|many).{0,20}(?:memory"
        r"|vram|gpus?)|can (?:i|it|we) .{0,24}(?:run|train|fine.?tune) .{0,40}(?:on|with)|够(?:吗|不|用)|能不能|(?:能"
        r"|可以)(?:支持|跑|训练|部署|微调)(?:吗|么)|够不够"
        r"|跑得动|does not fit|\bsuffic(?:e|es|ient)\b|does (?:it|this) run on|(?:bigger"
        r"|larger) than (?:all )?(?:my|the|our) (?:gpu|card|vram)|what (?:vram|gpu)[^\n]{0,12}(?:need|require)"
        r"|能跑(?:这个|起来|得动|吗)|卡太小|tried everything|every memory trick|smallest possible"
        r"|所有[^\n]{0,8}(?:办法|方法|设置)[^\n]{0,6}试|weights alone|权重都?比显存|跑不动|does not run on my"
        r"|\b(?:be|is|are) enough (?:for|to)|too (?:large|big) for (?:my|a|one|the) (?:single )?\w{0,10} ?\d"
        r"|(?:最少|至少)(?:需?要)?几张|显存只有|只有 ?\d{1,2} ?gb?[^\n]{0,10}(?:办法|能|可以)|(?:which"
        r"|what) gpu to (?:buy|rent|get)|anyone (?:managed|able)"
        r"|\bcan (?:an?|my|one|two|\d) [^\n]{0,24}\b(?:run|train|handle|host|fit)\b[^\n]{0,24}\?|(?:gpu|card"
        r"|vram|memory) is too (?:small|little)",
    ),
    Clue("little-allowed", FAIR, says=r"max allowed: [12]?\d(?:\.\d{1,2})? gi?b"),
    Clue(
        "small-machine",
        WEAK,
        says=r"\bmps\b|macbook|mac mini|apple m\d|\bm[1-4] (?:pro|max|air|ultra)\b|jetson|tpu ?v[23]\b|laptop"
        r"|\bphone\b"
        r"|raspberry|\bonly have (?:a|one|1|two)\b|我只有|笔记本",
    ),
)
_FAR_OVER: Final = 2.0
"""A compiled program this many times the memory of one chip is not a matter of a setting."""
_FLOOR: Final = 0.55
"""Bytes per parameter of the smallest usable weights, 4 bit with scales."""


def weigh(view: View) -> Iterator[Reason]:
    """What is asked, and the smallest form against all cards together."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    failure = view.failure
    if failure is not None and failure.signal.name == "xla-hbm-exhausted":
        needed, there = failure.signal.data.get("needed_bytes"), failure.signal.data.get("capacity_bytes")
        if needed and there and needed >= _FAR_OVER * there:
            message = say("cause.hardware-limit.hbm", needed_bytes=needed, capacity_bytes=there)
            yield Reason(FAIR, message, (failure.signal.span,))
    capacity = view.bytes_of("capacity")
    params = view.estimate.params if view.estimate is not None else (view.job.params_b or 0) * 1e9
    if not capacity or not params:
        return
    total = capacity * (view.ranks or 1)
    if params * _FLOOR > total and not view.serving:  # a server's cards are often not all named
        yield Reason(STRONG, say("cause.hardware-limit.floor", floor_bytes=params * _FLOOR, total_bytes=total))
    elif (
        view.job.method == "full"
        and view.training
        and params * 16 > total
        and "optimizer" not in (view.job.offload or ())
    ):
        yield Reason(WEAK, say("cause.hardware-limit.states", states_bytes=params * 16, total_bytes=total))
