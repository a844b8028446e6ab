"""Words for how weights and caches are stored, and the size of the card."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.chat.phrases.phrase import Phrase, says

__all__ = ["STORAGE"]

STORAGE: Final[tuple[Phrase, ...]] = (
    Phrase(
        "capacity_gib",
        re.compile(
            r"(?i)(?P<n>\d{2,3})\s?Gi?B?\s?(?:of\s)?(?:cards?|gpus?|vram|显卡|的?\s?卡|显存)"
            r"|(?:\bcards?|\bgpus?|\bvram|显存|每张卡|单卡)\s?(?:are|is|have|has|has\sonly|only|有|是|只有|为)?\s?(?P<n2>\d{2,3})\s?G(?:i?B)?(?![\w.])"
        ),
        convert=float,
    ),
    Phrase(
        "host_gib",
        re.compile(
            r"(?i)(?:\b(?:host|cpu|system)\s(?:memory|ram)|\bram|(?:主机|机器|系统)内存|内存)\s?(?:is|of|only|has|只有|有|是|为|就){0,2}\s?(?P<n>\d{2,5})\s?Gi?B?(?![\w.])"
            r"|(?P<n2>\d{2,5})\s?Gi?B?\s?(?:of\s)?(?:(?:host|cpu|system)\s(?:memory|ram)|ram\b|的?(?:主机)?内存)"
        ),
        convert=float,
    ),
    says(
        "serving.kv_dtype",
        r"\b(?:fp8|int8)\s?(?:kv)(?:[\s_-]?cache)?\b|\bkv[\s_-]?(?:cache)?(?:[\s_-]?d?type)?\s?(?:=|:|in|to|as|is|改成|换成|改为|用|量化成|量化到|量化)?\s?fp8\b"
        r"|kv\s?缓存\s?(?:改成|换成|改为|用|量化成|量化到|量化)?\s?fp8",
        "fp8",
    ),
    says(
        "quant",
        r"\b(?:un-?quanti[sz]ed|not\squanti[sz]ed|no\squanti[sz]ation|without\squanti[sz]ation)\b|不量化|取消量化|非量化|不做量化",
        "none",
    ),
    says("quant", r"\bgptq[\s_-]?int8\b", "gptq-int8"),
    says("quant", r"\bawq\b", "awq-int4"),
    says("quant", r"\bgptq\b", "gptq-int4"),
    says("quant", r"\bdouble\squant\w{0,8}\b|双重量化", "nf4-double"),
    says(
        "quant",
        r"\b(?:load[\s_]in[\s_])?8[\s_-]?bits?\b(?!\s?(?:adam|optim|lion))|\bint8\b|8\s?(?:比特|位)(?:量化)?",
        "int8",
    ),
    says(
        "quant",
        r"\b(?:load[\s_]in[\s_])?4[\s_-]?bits?\b(?!\s?(?:adam|optim))|\bnf4\b|\bint4\b|4\s?(?:比特|位)(?:量化)?",
        "nf4",
    ),
    says(
        "quant",
        r"\bfp8\s(?:weights?|quant\w{0,8}|version|checkpoint)\b|\bfp8\s?(?:权重|量化|版)|\b(?:weights?|quanti[sz]\w{0,6})\s(?:to|in|as)\s?fp8\b",
        "fp8",
    ),
    says("quant", r"\bmxfp4\b", "mxfp4"),
)
