"""How people say that one field of the job should change, in English and Chinese.

One row a way of saying it: the field, a bounded pattern, and the value. The patterns run over one short turn, never
over pasted logs. Of two phrases that want the same words, the earlier in :data:`PHRASES` has them: "8-bit adam" is an
optimizer, "enforce eager" a server's mode.
"""

from __future__ import annotations

import re
from typing import Final

from oomdoc.chat.phrases.phrase import Phrase
from oomdoc.chat.phrases.quantities import QUANTITIES, QUANTITY_PHRASES
from oomdoc.chat.phrases.serving import STORAGE
from oomdoc.chat.phrases.switches import SWITCHES
from oomdoc.chat.phrases.training import CHOICES, OPTIMIZERS

__all__ = ["FIELD_NAMES", "PHRASES", "Phrase"]

_STORAGE_SIZES: Final = tuple(p for p in STORAGE if p.value is None)
_STORAGE_WORDS: Final = tuple(p for p in STORAGE if p.value is not None)

PHRASES: Final[tuple[Phrase, ...]] = (
    *(p for p in SWITCHES if p.field in ("offload", "extra_models")),
    *OPTIMIZERS,
    *(p for p in SWITCHES if p.field not in ("offload", "extra_models")),
    *_STORAGE_SIZES,
    *QUANTITY_PHRASES,
    *_STORAGE_WORDS,
    *CHOICES,
)
"""In order of precedence."""

FIELD_NAMES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    *((q.field, q.pattern) for q in QUANTITIES if q.field != "host_gib"),
    ("gpu", re.compile(r"(?i)\bgpu\b(?!\s?(?:mem|util|count))|\bcard\b|显卡|卡型|型号")),
    ("gpus", re.compile(r"(?i)\bgpus?\b(?!\s?(?:mem|util))|\bcards?\b|卡")),
    ("method", re.compile(r"(?i)\blora\b|\bqlora\b|\bmethod\b|微调方式|全参")),
    ("sharding", re.compile(r"(?i)\bzero[\s-]?[123]?\b|\bfsdp\b|\bsharding\b|分片")),
    ("offload", re.compile(r"(?i)off-?load|卸载")),
    ("grad_ckpt", re.compile(r"(?i)check-?point|recompute|重计算|检查点")),
    ("fused_ce", re.compile(r"(?i)liger|fused|融合")),
    ("attention", re.compile(r"(?i)\battention\b|\bflash\b|注意力")),
    ("packing", re.compile(r"(?i)\bpacking\b|打包")),
    ("quant", re.compile(r"(?i)quanti|量化|\bbits?\b")),
    ("optimizer", re.compile(r"(?i)optimi[sz]er|优化器|\badam\w{0,2}\b")),
    ("param_dtype", re.compile(r"(?i)\bprecision\b|\bdtype\b|精度")),
    ("objective", re.compile(r"(?i)\bdpo\b|\bsft\b|objective|目标")),
    ("serving.kv_dtype", re.compile(r"(?i)\bkv\b")),
    ("serving.cuda_graphs", re.compile(r"(?i)\bcuda\s?graphs?\b|\beager\b")),
    ("model", re.compile(r"(?i)\bmodel\b|模型")),
)
"""How a turn names a field without giving it a value: "undo the seq change"."""
