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

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say
from oomkb.units import GIB

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "hardware-limit"

_CLUES: Final = (
    Clue(
        "possible",
        WEAK,
        says=r"(?:which|what) (?:gpu|hardware|card|approach)|is there an alternative|最低(?:显存|配置|要求)|设备条件"
        r"|最小显存|biggest model|(?:需要|要)几张卡|最低要"
        r"|更?小一点的模型|更大的卡|显存(?:需求|要求)(?:表|是|如何|怎么|有多)|need (?:more|bigger|larger) gpus?\b"
        r"|is (?:one|a|it|this|\d) .{0,40}(?:enough|possible|sufficient)|how (?:much|many).{0,20}(?:memory"
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
    Clue(
        "larger-one",
        FAIR,
        says=r"(?:do|should|must|would) (?:i|we|you) (?:need|have to|get|buy|use|using|upgrade)[^\n?]{0,16}(?:bigger"
        r"|larger|better"
        r"|(?:more )?(?:capable|powerful)|stronger)[^\n?]{0,12}(?:gpu|card|machine|hardware)"
        r"|(?:is|be|are|would|could) (?:this|that|it|they|\d{1,3} ?gb|my \w{1,10}) (?:be )?(?:enough|sufficient"
        r"|too (?:small"
        r"|little|weak))[^\n]{0,30}\?"
        r"|(?:graphics? card|gpu|video card|my (?:laptop|pc|machine)) is (?:too |quite |very |rather )?(?:old|weak"
        r"|low.?end)"
        r"|\b(?:weak|low.?end|old|older|entry.?level) (?:gpu|graphics? card|hardware|laptop)s? (?:like|with|of mine)"
        r"|(?:除了|只能)(?:更?换|升级|买|加)[^\n]{0,10}(?:gpu|显卡|卡|机器)[^\n]{0,10}(?:办法|方案|解决)"
        r"|要不要换[^\n]{0,4}卡"
        r"|(?:will|would|does|should|could) (?:this|it) (?:work|run|fit)[^\n?]{0,20}(?:with|on"
        r"|in) [^\n?]{0,12}\d{1,2} ?gi?b[^\n?]{0,20}\?"
        r"|(?:只能|要不要|需要|是不是得)换(?:个|张|更?[大好]的?)?(?:显?卡|机器|gpu)"
        r"|(?<!\d)\d{1,2} ?gi?b?[^\n]{0,6}(?:显存|显卡)?够(?:用)?(?:吗|不|么)"
        r"|显卡(?:太|比较|有点)(?:差|旧|老|低端|弱)",
    ),
    Clue(
        "old-card",
        FAIR,
        says=r"\bgtx? ?(?:6[5-9]0|7[4-8]0|9[1-8]0|10[1-6]0|16[56]0)(?:m|ti)?\b|\bgt ?\d{3,4}\b|\bgeforce (?:mx ?\d{3}"
        r"|gt|[89]\d0m?)\b"
        r"|\bmx ?[1-5][1-7]0\b|\brtx ?[23]050\b|\bquadro [kmp]\d{3,4}\b|\bquadro t[1-9]000?\b|\b9[1-6]0mx?\b"
        r"|jetson nano",
    ),
    Clue(
        "small-told",
        WEAK,
        says=r"(?:\bgtx?|rtx|radeon|\brx|quadro|\bmx|geforce)[ -]?\w{0,6} ?\d{3,4}\w{0,3}(?: ti"
        r"| super)?[ ,(-]{1,3}[1-8] ?gi?b\b"
        r"|(?<![\d.])(?<!needs )(?<!uses )(?<!takes )(?<!need )[1-8](?:\.\d)? ?gi?[bo]?\b(?: of)?(?: (?:gpu|nvidia"
        r"|dedicated))?[ -]{0,2}(?:v-?ram|graphic"
        r"|video|显存|显卡"
        r"|gpu\b)|(?:v-?ram|gpu|graphics? card|显存|显卡)(?: (?:only|just|has|have|is|of|with|memory)| ?只?有"
        r"| ?[:：(]){1,3} ?(?<![\d.])"
        r"[1-8](?:\.\d)? ?gi?b?\b",
    ),
    Clue(
        "protein",
        FAIR,
        says=r"\d{3,5} ?(?:aa|residues|a\.a\.)|\b(?:alphafold|colabfold|bindcraft|boltz|rosettafold)",
        unless=r"validation|\btrain",
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
_TINY_CARD: Final = 4.1 * GIB
_SMALL_CARD: Final = 8.1 * GIB
_LARGE_PART: Final = 0.3
"""A request of such a part of the card is of one tensor, which a smaller batch or picture makes smaller."""
_OTHERS: Final = 1.2 * GIB
"""More than a context takes: what a process neither holds nor finds free is another's."""
_ROOM: Final = (
    r"batch.?size\w{0,2} ?(?:=|of|to|:|is|>)? ?(?:[4-9]|[1-9]\d{1,3})\b|\b(?:[4-9]|[1-9]\d{1,2}) batch.?size"
    r"|any batch.?size ?>"
)
"""A batch that can still be made smaller."""
_HOW_MUCH: Final = (
    r"how (?:much|many|large|big)[^\n?]{0,24}(?:memory|vram|\bram\b|rams\b|gpus?|hardware)[^\n?]{0,40}(?:need|requir"
    r"|recommend|necessary|enough|should)|(?:hardware|system) (?:requirements?|specs?)\b|recommended (?:hardware|gpus?"
    r"|spec)|(?:what"
    r"|min)[^\n]{0,24}requirements?\b"
    r"|(?:memory|vram|gpu) requirements?\b[^\n]{0,40}\?"
    r"|\bmin(?:imum|imal)[^\n?]{0,20}(?:hardware|system|gpu|vram|memory|requirement)"
    r"|(?:what|which) (?:kind of |type of |sort of )?(?:device|gpu|graphics? card|hardware|machine)s? (?:is|are|was"
    r"|were"
    r"|should)[^\n]{0,24}(?:need|requir|recommend|use)|(?:至少|最少|最低)(?:需要|要)?(?:多少"
    r"|多大)[^\n，。]{0,4}(?:显存|卡)"
)
_HOW_LARGE: Final = (
    r"显存(?:需求|要求)(?:表|是|如何|怎么|有多)"
    r"|(?:需要|要|得)(?:用)?(?:多少|多大|什么样?的?)[^\n，。]{0,6}(?:显存|显卡|gpu|卡)|多大(?:的)?显存"
)
_OF_THE_HOST: Final = re.compile(r"\b(?:cpu|host|system)[ -]?(?:memory|ram)|pre-? ?process|conver(?:t|sion)")
_ELSEWHERE: Final = (
    r"(?:tell|share|know|mention|ask)[^\n]{0,30}(?:gpu|device|hardware|card)s? (?:that )?(?:you|was|were"
    r"|they) (?:have )?(?:used?|using)|\bgpus? (?:do|did) you (?:use|train)"
    r"|(?:what|which) (?:kind of |type of |sort of )?(?:device|gpu|graphics? card|hardware|machine)s? (?:did|do|have)"
)
"""What the authors had themselves."""
_LEAST: Final = (
    r"batch.?size[^\n]{0,16}\b(?:1|one|minimum|smallest)\b(?!\.\d)|\bbs ?=? ?1\b|(?:smallest|minimal|minimum) batch"
    r"|batch"
    r"(?:.?size)?[^\n]{0,12}最小|最小的? ?batch|batch of (?:1|one)\b"
)
"""Nothing left to make smaller."""
_MODEST: Final = 12.6 * GIB
_CONSUMER: Final = 24.5 * GIB
_SPILLED: Final = 1.2
"""On Windows the driver lets a card hold more than it has, in the machine's memory, until that is full too."""
_LARGE_BATCH: Final = 4
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
    yield from _small_card(view, capacity)
    modest = bool(capacity and capacity < _MODEST)
    yield from _asked(view, capacity)
    least = view.says(_LEAST)
    if modest and least is not None and view.training:
        yield Reason(FAIR, say("cause.hardware-limit.least", quote=least.text.strip()[:90]), (least,))
    held = max(view.bytes_of("allocated") or 0, view.bytes_of("reserved") or 0)
    if capacity and held > _SPILLED * capacity and view.estimate is None:
        yield Reason(FAIR, say("cause.hardware-limit.spilled", held_bytes=held, capacity_bytes=capacity))
    params = view.estimate.params if view.estimate is not None else (view.job.params_b or 0) * 1e9
    if not capacity or not params:
        return
    total = capacity * (view.ranks or 1)
    if params * _FLOOR > total and not view.serving:  # a server's cards are often not all named
        yield Reason(WEAK, say("cause.hardware-limit.floor", floor_bytes=params * _FLOOR, total_bytes=total))
    elif (
        view.job.method == "full"
        and view.training
        and params * 16 > total
        and "optimizer" not in (view.job.offload or ())
    ):
        yield Reason(WEAK, say("cause.hardware-limit.states", states_bytes=params * 16, total_bytes=total))


def _room(view: View) -> bool:
    """Whether a training has a batch that can still be made smaller."""
    return view.training and (view.says(_ROOM) is not None or (view.stated("micro_batch") or 0) >= _LARGE_BATCH)


def _asked(view: View, capacity: int | None) -> Iterator[Reason]:
    """The question what hardware it takes, unless the batch leaves room or the arithmetic says that it fits."""
    room = _room(view)
    if room:
        yield Reason(-WEAK, say("cause.out-of-place"))
    least = bool(capacity and capacity <= _CONSUMER) or view.says(_LEAST) is not None
    asked = view.says(_HOW_MUCH, prose=True) or view.says(_HOW_LARGE, prose=True)
    if asked is not None and not _OF_THE_HOST.search(asked.text.lower()):
        open_ = view.estimate is None or view.failure is None or not view.training or least or (view.fullness or 0) > 1
        if open_:
            message = say("cause.hardware-limit.how-much", quote=asked.text.strip()[:90])
            yield Reason(_question(view, room, capacity, least), message, (asked,))
        return
    others = view.says(_ELSEWHERE, prose=True)
    if others is not None and view.estimate is None:
        yield Reason(WEAK, say("cause.hardware-limit.how-much", quote=others.text.strip()[:90]), (others,))


def _question(view: View, room: bool, capacity: int | None, least: bool) -> float:
    """What the question says: who has a large card, or trains on one that is not named, asks for many reasons."""
    limited = bool(capacity and capacity <= _CONSUMER)
    if view.failure is None:  # nothing failed: the question is all there is
        return FAIR if view.training or view.says(_HOW_MUCH, prose=True) is None else STRONG
    if view.says(_HOW_MUCH, prose=True) is None:
        return FAIR if limited or least else WEAK
    if limited:
        return FAIR if room else STRONG
    return FAIR if capacity is None and not view.training else WEAK


def _small_card(view: View, capacity: int | None) -> Iterator[Reason]:
    """A card on which little fits at all, unless one large tensor was asked for."""
    if not capacity or capacity > _SMALL_CARD or capacity <= 0:
        return
    requested, held, free = (view.bytes_of(name) or 0 for name in ("requested", "allocated", "free"))
    held = max(held, view.bytes_of("reserved") or 0)
    if held and capacity - held - free > _OTHERS:
        return  # most of it is held by something else
    tiny = capacity <= _TINY_CARD and requested < _LARGE_PART * capacity
    smaller = capacity > _TINY_CARD / 2 and (view.stated("micro_batch") or 0) >= _LARGE_BATCH
    weight = (FAIR if smaller else STRONG) if tiny else WEAK
    yield Reason(weight, say("cause.hardware-limit.small-card", capacity_bytes=capacity))
