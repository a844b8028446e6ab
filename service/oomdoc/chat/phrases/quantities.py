"""Fields whose value is a number: how each is named, what is counted, and what numbers are plausible.

One row a field; the same names serve "seq 8192", "halve the sequence", "undo the length" and "a bit shorter".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from oomdoc.chat.phrases.phrase import Phrase
from oomdoc.intake.numbers import NUMBER

__all__ = ["QUANTITIES", "QUANTITY_PHRASES", "Quantity"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """``names`` and ``units`` are bounded patterns; a bare number is taken for the field only within its limits."""

    field: str
    names: str
    units: str = ""
    lowest: float = 1
    highest: float = 4096
    convert: Callable[[float], Any] = int

    @property
    def pattern(self) -> re.Pattern[str]:
        """How the field is named."""
        return _NAMED[self.field]


_PERCENT_FROM: Final = 5
"""A share from which it is meant in percent; 1.3 is none that a card has."""


def _fraction(number: float) -> float:
    return number / 100 if number >= _PERCENT_FROM else number


QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "generations",
        r"\bnum[\s_]generations\b|\bgenerations\b|\b(?:rollouts?|responses?|completions?|samples)\sper\sprompt\b|\bgroup\ssize\b|\brollout\.n\b"
        r"|采样(?:数|条数)|生成(?:条)?数|每(?:个|条)\s?(?:prompt|提示|问题)",
        units=r"generations\b|(?:completions?|responses?|rollouts?|samples)\b(?:\s(?:per|a|each)\s?prompt)?|(?:per|each)\sprompt\b|条(?:回[复答]|采样)",
        highest=1024,
    ),
    Quantity(
        "completion_len",
        r"\bmax[\s_-](?:completion|response|new[\s_]tokens)(?:[\s_-]len(?:gth)?)?\b"
        r"|\b(?:completions?|responses?|answers?|generat(?:ion|e|ed)|output)(?:[\s_-](?:len(?:gth)?|max[\s_]len))?\b(?!s?\sper)"
        r"|(?:生成|回复|回答|输出|响应)(?:的)?(?:最大)?(?:长度)?",
        lowest=32,
        highest=1 << 20,
    ),
    Quantity(
        "prompt_len",
        r"\b(?:max[\s_-])?prompts?(?:[\s_-](?:max[\s_])?len(?:gth)?)?\b|(?:提示词?|输入)(?:最大)?(?:长度)?",
        lowest=32,
        highest=1 << 20,
    ),
    Quantity("lora.alpha", r"\b(?:lora[\s_])?alpha\b"),
    Quantity("serving.max_model_len", r"\bmax[\s_-]{0,2}model[\s_-]{0,2}len(?:gth)?\b", lowest=128, highest=1 << 21),
    Quantity(
        "serving.max_num_seqs",
        r"\bmax[\s_-](?:num[\s_-])?seqs\b|\bmax[\s_-]num[\s_-]sequences\b|\bconcurren(?:cy|t\s(?:requests|sequences))\b|\bmax[\s_-]running[\s_-]requests\b|并发(?:数|量)?",
        units=r"concurrent\b(?:\srequests)?|个?并发",
        highest=65536,
    ),
    Quantity(
        "serving.max_num_batched_tokens",
        r"\b(?:max[\s_-]num[\s_-])?batched[\s_-]tokens\b|\bchunked[\s_-]prefill[\s_-]size\b",
        lowest=64,
        highest=1 << 21,
    ),
    Quantity(
        "seq_len",
        r"\bseq(?:uences?|s)?(?:[\s_-]?len(?:gths?)?)?\b(?!\s?parallel)|\bcut-?off(?:[\s_]len(?:gth)?)?\b"
        r"|\bmax[\s_](?:seq(?:uence)?[\s_])?len(?:gth)?\b|\bcontext(?:[\s_-]?(?:length|len|window|size))?\b(?!\s?parallel)"
        r"|\bctx\b|\bblock[\s_]size\b|\blength\b|序列(?:长度)?|上下文(?:长度|窗口)?(?!并行)|(?:最大|截断)?长度",
        units=r"(?:k\s)?tokens?\b(?!\s?/\s?s)|ctx\b|(?:k\s)?context\b|长度",
        lowest=128,
        highest=1 << 21,
    ),
    Quantity(
        "eval_micro_batch",
        r"\b(?:per[\s_-]device[\s_])?eval(?:uation)?[\s_-](?:micro[\s_-]?)?batch(?:[\s_-]?size)?\b|验证(?:的)?\s?batch|评估(?:的)?\s?batch",
    ),
    Quantity(
        "micro_batch",
        r"(?:per[\s_-]device[\s_](?:train[\s_])?)?(?<![A-Za-z])(?:micro[\s_-]?(?:train[\s_-]?)?)?batch(?:es)?(?:[\s_-]?size)?"
        r"(?:[\s_]per[\s_](?:gpu|device))?\b|\bmicro[\s_-]batch\b|\bper[\s-]device\b|\bmbs\b|\bbs\b|\bbsz\b|\bmb\b|批(?:量|次)?(?:大小)?|单卡\s?(?:batch|批)",
        highest=1024,
    ),
    Quantity(
        "grad_accum",
        r"\b(?:grad(?:ient)?[\s_-]?)?accum(?:ulation|ulate|ulating)?(?:[\s_]steps)?\b|\bga\b|(?:梯度)?累[积计](?:步数)?",
        highest=8192,
    ),
    Quantity("tp", r"\btp\b|\btensor[\s_-]parallel(?:ism)?(?:[\s_-]size)?\b|张量并行(?:度)?", highest=64),
    Quantity("pp", r"\bpp\b|\bpipeline[\s_-]parallel(?:ism)?(?:[\s_-]size)?\b|流水线?并行(?:度)?", highest=256),
    Quantity("cp", r"\bcp\b|\bcontext[\s_-]parallel(?:ism)?(?:[\s_-]size)?\b|上下文并行(?:度)?", highest=256),
    Quantity("ep", r"\bep\b|\bexpert[\s_-]parallel(?:ism)?(?:[\s_-]size)?\b|专家并行(?:度)?", highest=512),
    Quantity("sp", r"\bulysses\b|\bsequence[\s_-]parallel(?:ism)?(?:[\s_-]size)?\b|序列并行(?:度)?", highest=256),
    Quantity(
        "lora.r",
        r"\b(?:lora[\s_]?)?rank\b|\blora[\s_]?r\b|\br\b(?=\s?(?:[=:]|to|from|of|改成|改为|换成|设为|设成|调到|降到|是|为|从|改)?\s?\d)|(?:lora\s?的?)?秩",
        highest=2048,
    ),
    Quantity(
        "nodes",
        r"\bnodes?\b(?=\s?[=:])|\bnnodes\b|节点数|\bnodes\b",
        units=r"nodes?\b|machines?\b|servers?\b|boxes\b|个?\s?节点|台(?:机器|服务器)?|机(?![器型])",
        highest=1024,
    ),
    Quantity(
        "gpus",
        r"\bgpus\b|\bnum[\s_]gpus\b|卡数|显卡数|(?:gpu|卡)\s?的?数量?|\bgpu\scount\b|\bnumber\sof\s(?:gpus|cards)\b",
        units=r"(?:x\s)?(?:more\s)?gpus?\b(?!\s?(?:mem|util))|cards?\b|devices?\b|of\s(?:them|those|these)\b|张(?!\s?图)\s?(?:显卡|卡|gpu)?|[块片个]?\s?(?:显卡|卡|gpu)(?![\s_-]?mem)",
        highest=1024,
    ),
    Quantity(
        "max_pixels",
        r"\b(?:max|image)[\s_-]pixels\b|\bpixels\b|(?:最大)?像素(?:数|上限)?|分辨率",
        lowest=784,
        highest=1 << 27,
    ),
    Quantity(
        "images",
        r"\bimages\b(?:\sper\s(?:sample|prompt))?|图片数|图像数",
        units=r"images?\b|pictures\b|[张幅]\s?图片?",
        highest=1024,
    ),
    Quantity("video_frames", r"\b(?:video\s)?frames\b|帧数", units=r"frames?\b|帧", highest=65536),
    Quantity(
        "gpu_memory_utilization",
        r"\b(?:gpu[\s_-]{0,2})?mem(?:ory)?[\s_-]{0,2}util(?:i[sz]ation)?\b|\butil(?:i[sz]ation)?\b|\bmem(?:ory)?[\s_-]{0,2}fraction(?:[\s_-]static)?\b"
        r"|\b(?:rollout|vllm|sglang)(?:'s|\sengine)?(?:\s(?:memory|gpu))?(?:\s(?:share|fraction|part))?\b(?=\s(?:rollout\s)?(?:at|to|down|of|share|fraction)\b)"
        r"|显存(?:占用|利用|使用)?(?:率|比例|占比)|(?:rollout|vllm|引擎)\s?(?:的)?(?:显存)?(?:占比|比例|份额)",
        lowest=0.05,
        highest=100,
        convert=_fraction,
    ),
    Quantity(
        "host_gib",
        r"\bhost\s(?:memory|ram)\b|\bcpu\s(?:memory|ram)\b|\bsystem\s(?:memory|ram)\b|(?:主机|机器|系统)内存",
        highest=65536,
        convert=float,
    ),
)
_UNSAID: Final = frozenset({"host_gib"})
"""Named in questions far more often than set; read by phrases of their own."""

_WORD_LINKS: Final = (
    r"(?:is|of|to|at|was|be|only|just|down|up|back|again|size|length|len|from|set|go|goes|should|will"
    r"|就|只|再|先|也|都|要|给|把|我|用|开|为|是|到|从|改|换|设|调|上限|值"
    r"|(?:调|降|减|缩|加|增|提|升|砍|变|改|换|设|回|恢复)(?:低|少|短|大|高|小|长|整|置)?(?:到|成|为|至|回))"
)
_LINK: Final = rf"[\s_=:：]{{0,3}}(?:{_WORD_LINKS}[\s=]{{0,2}}){{0,5}}"
_FIRM_LINK: Final = rf"(?:\s?[=:：]\s?|\s?(?:{_WORD_LINKS}[\s=]{{0,2}}){{1,5}})"
_ARROW: Final = r"\s?(?:->|→|=>|to|down\sto|up\sto|换成|换|改成|改为|改到|改|变成|变|降到|降为|减到|降|加到|升到|提高到|提到|到|成)\s?"
_SAYS: Final = rf"(?:(?:{NUMBER}){_ARROW})?(?P<n>{NUMBER})"
_PERCENT: Final = r"(?P<n>[01]?\.\d{1,3}|\d{1,2}\s?%|\d{2}(?=\s|$))"


def _phrases(quantity: Quantity) -> list[Phrase]:
    says = _SAYS if quantity.field != "gpu_memory_utilization" else rf"(?:[01]?\.\d{{1,3}}{_ARROW})?{_PERCENT}"
    loose = rf"(?:{quantity.names}){_LINK}{says}"
    patterns = [loose]
    if quantity.units:
        # "4 gpus 2 nodes": what stands before the unit counts, unless the name is linked to its number.
        firm = rf"(?:{quantity.names}){_FIRM_LINK}{says}"
        patterns = [firm, rf"(?:(?:{NUMBER}){_ARROW})?(?P<n>{NUMBER})\s?(?:{quantity.units})", loose]
    return [Phrase(quantity.field, re.compile(rf"(?i){p}"), convert=quantity.convert) for p in patterns]


_NAMED: Final = {
    q.field: re.compile(rf"(?i)(?:{q.names})" + (rf"|(?:{q.units})" if q.units else "")) for q in QUANTITIES
}

QUANTITY_PHRASES: Final[tuple[Phrase, ...]] = tuple(
    p for q in QUANTITIES if q.field not in _UNSAID for p in _phrases(q)
)
"""``seq 8192``, ``seq_len=8192``, ``length from 8192 down to 4096``, ``长度降到 4096``, ``8192 tokens``."""
