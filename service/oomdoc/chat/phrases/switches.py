"""Words for what is on or off, and what is moved off the GPU; and how switching off is said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat.phrases.phrase import Phrase, says

__all__ = ["OFF_VALUES", "SWITCHES", "is_off", "is_replaced"]

_OPTIMIZER: Final = r"(?:adam\w{0,2}|optim\w{0,12}(?:\sstates?)?|优化器(?:状态)?)"
_PARAMETERS: Final = r"(?:(?:model\s)?param\w{0,8}|(?:model\s)?weights|模型参数|参数|权重)"
_ACTIVATIONS: Final = r"(?:activations?|激活(?:值)?)"
_AND: Final = r"\s?(?:and|\+|&|,|plus|和|与|、|以及|跟|及)\s?(?:the\s|也\s?)?"
_OFFLOAD: Final = r"(?:(?:cpu\s)?off-?load(?:ed|ing|s)?\b|卸载|(?:放|挪|移|搬)(?:到|去)\s?(?:cpu|内存|主机)|(?:on|to|onto|in)\s(?:the\s)?(?:cpu|host)\b)"
_OWN: Final = r"\s?(?:states?\s)?(?:也|都|一起|全|are|is|should\sbe|goes|go)?\s?"
_BOTH: Final = rf"(?:{_OPTIMIZER}{_AND}{_PARAMETERS}|{_PARAMETERS}{_AND}{_OPTIMIZER})"


def _moved(what: str) -> str:
    return rf"{what}{_OWN}{_OFFLOAD}|{_OFFLOAD}\s?(?:of\s)?(?:just\s|only\s|both\s)?(?:the\s)?{what}"


_CKPT: Final = (
    r"(?:gradient\s|activation\s|grad[\s_-]?|full\s)?(?:check-?point(?:ing|s)?\b|re-?comput(?:e|ation|ing)\b(?:\s(?:everything|activations?|all))?|ckpt\b)"
    r"|\bfull\sac\b|\bac\son\b|(?:全|完全)?(?:激活)?重计算|梯度检查点|梯度重算|激活检查点|检查点"
)
_LIGER: Final = (
    r"liger(?:[\s_-]kernel)?\b|fused[\s_-](?:ce|loss|cross[\s_-]entropy|linear[\s_-]ce)\b|chunked[\s_-](?:ce|loss|cross[\s_-]entropy)"
    r"|cut[\s_-]cross[\s_-]entropy|\bcce\b|融合(?:的)?(?:交叉熵|损失|loss)|分块(?:的)?(?:交叉熵|损失|loss)"
)
_FLASH: Final = r"\bflash[\s_-]?att(?:entio)?n(?:tion)?"

SWITCHES: Final[tuple[Phrase, ...]] = (
    says("serving.cuda_graphs", r"\beager\smode\b|\benforce[\s_-]eager\b", False),
    says("serving.cuda_graphs", r"\bcuda[\s_-]?graphs?\b", True),
    says(
        "grad_ckpt",
        r"\bselective\s(?:activation\s)?(?:check-?pointing|recompute|recomputation|ac)\b|选择性(?:激活)?(?:重计算|检查点)",
        "selective",
    ),
    says(
        "offload",
        _moved(_BOTH) + rf"|{_OFFLOAD}\s?(?:both|everything|all)\b|(?:全部|都|全){_OFFLOAD}",
        ("optimizer", "param"),
    ),
    says("offload", _moved(_ACTIVATIONS), ("activations",)),
    says("offload", _moved(_OPTIMIZER), ("optimizer",)),
    says("offload", _moved(_PARAMETERS), ("param",)),
    says("offload", rf"{_OFFLOAD}(?:\s?to\s(?:the\s)?cpu|\s?到\s?(?:cpu|内存))?", ("optimizer",)),
    says("grad_ckpt", _CKPT, True),
    says("fused_ce", _LIGER, True),
    says("packing", r"\bpacking\b|\bpacked\b|打包", True),
    says("compile", r"\btorch[\s_.]?compile\b", True),
    says("attention", rf"{_FLASH}[\s_-]?3\b|\bfa3\b", "flash3"),
    says("attention", rf"{_FLASH}(?:[\s_-]?2)?\b|\bfa2?\b|\bflash2\b", "flash2"),
    says("attention", r"\bsdpa\b", "sdpa"),
    says("attention", r"\beager\sattention\b|\beager\b(?!\smode)", "eager"),
    says(
        "rollout.colocated",
        r"\b(?:separate|dedicated|own)\s(?:rollout\s|vllm\s|inference\s)?(?:gpus?|nodes?|cards?)\b|(?:单独|分离|独立)(?:的)?(?:部署|显卡|卡|gpu|机器)",
        False,
    ),
    says("rollout.colocated", r"\bcolocat(?:ed?|ion|ing)\b|共置|混合部署", True),
    says("rollout.sleep", r"\bsleep\s(?:mode|level)\b|\bsleep\b|睡眠模式|休眠", True),
    says(
        "extra_models",
        r"\b(?:no|without|drop|remove)\s(?:a\s|the\s)?ref(?:erence)?(?:\smodel)?\b|(?:不用|去掉|不要)参考模型|\bbeta\s?[=:]?\s?0(?![.\d])",
        (),
    ),
)

OFF_VALUES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "method": "full",
        "sharding": "none",
        "quant": "none",
        "attention": "sdpa",
        "offload": (),
        "optimizer": "adamw",
        "param_dtype": "fp32",
        "serving.kv_dtype": "auto",
        **dict.fromkeys(("grad_ckpt", "fused_ce", "packing", "compile", "rollout.colocated", "rollout.sleep"), False),
        "serving.cuda_graphs": False,
        **dict.fromkeys(("tp", "pp", "cp", "ep", "sp"), 1),
    }
)
"""What a field becomes when it is switched off."""

_WHY: Final = r"(?:why\s(?:is\s|are\s|do\swe\s|don'?t\swe\s|did\syou\s)?|为什么|为啥|为何|怎么|干嘛|何不|干吗)\s?"
_OFF_BEFORE: Final = re.compile(
    rf"(?i)(?P<why>{_WHY})?(?<![a-z])(?:no(?:\smore)?|not|without|disabl(?:e|ing)|drop(?:ping)?|remov(?:e|ing)|(?:turn|switch)(?:ing)?\soff|stop(?:ping)?|skip|kill|ditch"
    r"|(?:don'?t|do\snot|not|stop)\s(?:use|using|enable|need|want|do|doing)|forget(?:\sabout)?|get\srid\sof|un-?|-|退出|不用|不开|不要|不做|不想用|别用|别开|别做|别|没有|没开|没|关掉|关闭|关了|关|去掉|去除|取消|停用|禁用|不"
    r")\s?(?:the\s|any\s|that\s|再|用|使用|开)?\s?\Z"
)
_OFF_AFTER: Final = re.compile(
    r"(?i)\A\s?(?:is\s|are\s|was\s|set\sto\s|back\s|[=:]\s?)?(?:off\b|disabled\b|false\b|out\b)"
    r"|\A\s?(?:也|都|给我|再|先|还是|就|全)?\s?(?:关掉|关闭|关了|关上|关|去掉|取消|不要|不用|不开|停掉|拿掉|撤掉|去了)"
)
_REPLACED: Final = re.compile(
    r"(?i)(?:\binstead\sof|\brather\sthan|\bin\splace\sof|\breplac(?:e|ing)|而不是|代替|替代|取代)\s(?:the\s|using\s)?\Z|(?:而不是|代替|替代|取代)\s?\Z"
)


def is_off(turn: str, start: int, end: int) -> bool:
    """Whether what stands at ``start:end`` is said to be off; "why no lora?" is about having it."""
    before = _OFF_BEFORE.search(turn[max(0, start - 32) : start])
    return bool(before and not before["why"]) or bool(_OFF_AFTER.match(turn[end : end + 16]))


def is_replaced(turn: str, start: int) -> bool:
    """Whether what begins at ``start`` is what something else takes the place of."""
    return bool(_REPLACED.search(turn[max(0, start - 24) : start]))
