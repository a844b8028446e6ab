"""The words and marks around a card's name, for :mod:`oomkb.catalog.gpu_text`."""

from __future__ import annotations

import re
from typing import Final

from oomkb.catalog.tokens import words
from oomkb.lazy import lazy

TOKEN: Final = lazy(r"[0-9]g\.[0-9]{1,3}gb|[a-z0-9]{2,40}", re.I | re.A)
"""What can be a core token: a word, or a MIG profile."""
GAP: Final = lazy(r"[ \t\-_/()（）\[\],，:：+|®™\"']{0,3}")
WORD: Final = lazy(
    r"[0-9]{1,4}(?:\.[0-9]{1,2})?[ -]?gi?b?(?![a-z0-9])|[a-z0-9]{1,16}|昇腾|华为|英伟达|苹果", re.I | re.A
)
BEFORE: Final = lazy(
    r"([0-9]{1,3}(?:\.[0-9]{1,2})?[ -]?gi?b?|[a-z0-9]{1,16}|昇腾|华为|英伟达|苹果)"
    r"[ \t\-_/()（）\[\],，:：|的®™]{0,3}\Z",
    re.I | re.A,
)
SIZE: Final = lazy(r"([0-9]{1,4}(?:\.[0-9]{1,2})?)[ -]?gi?b?\Z", re.I | re.A)

COUNT_BEFORE: Final = lazy(
    r"(?<![0-9.a-z])([0-9]{1,4}|[一两二双三四五六七八九十单]) ?"
    r"(?:[x×*✕] ?|张|卡|块|片|个|台|枚|gpus? (?:of )?)\s?\Z",
    re.I,
)
COUNT_AFTER: Final = lazy(r"[)）]? ?[x×*✕] ?([0-9]{1,4})(?![0-9a-z.])", re.I)
BARE_COUNT: Final = lazy(r"(?<![0-9.a-z:/=-])([0-9]{1,3}) \Z", re.I)
NUMERALS: Final = {"单": 1, "一": 1, "两": 2, "二": 2, "双": 2} | dict(
    zip("三四五六七八九十", range(3, 11), strict=True)
)

GLUED_HEAD: Final = lazy(
    r"(?:([1-9][0-9]{0,2})x)?((?:nvidia|geforce|tesla|quadro|rtx|gtx|rx|titan|ascend|atlas|apple|amd|intel|arc|radeon"
    r"|instinct|jetson|nv|huawei|hygon|tpu)*)"
)
GLUED_TAIL: Final = lazy(
    r"ti|super|laptop|mobile|maxq|ada|max|pro|ultra|sxm[0-9]?|pcie|nvl|hbm[0-9]?e?|gpus?|x[0-9]{1,2}"
    r"|[1-9][0-9]{0,2}gi?b?|[sdm]"
)

NOT_A_CARD: Final = lazy(
    r"\s?(?:[kmgt]i?b\b|[mu]?s\b|%|tokens?\b|steps?\b|iters?\b|it\b|samples?\b|rows?\b|lines?\b|epochs?\b"
    r"|chars?\b|words?\b|px\b|[/.,:×x*] ?[0-9]|=)",
    re.I,
)
"""What follows a bare number that is none of a card: a unit, a fraction."""
INTRODUCES: Final = lazy(
    r"(?:(?:\b(?:a|an|the|on|one|my|our|single|with|using|use|uses|used|of|dual|two|three|four|six|eight|is|for|have"
    r"|has|and|or|vs|gpu|gpus|card|device|per|from|to|rent|into|local)|[×x*])[ \t:(]{1,2}"
    r"|[\u4e00-\u9fff：，。？、（(][ \t]?)\Z",
    re.I,
)
SLICE: Final = lazy(r"[0-9]g\.[0-9]{1,3}gb\Z")
SLICE_FOLLOWS: Final = lazy(r"[ \t\-_/(:]{0,3}(?:mig[ \t\-_:]{0,2})?[0-9]g\.[0-9]{1,3}gb", re.I)
FRACTION_FOLLOWS: Final = lazy(r"\.[0-9]")
ABOUT_GPUS: Final = lazy(
    r"gpu|cuda|vram|\boom\b|out of memory|显存|显卡|\bgi?b\b|colab|kaggle|nvidia|tesla|训练|推理|fine-?tun", re.I
)
ABOUT_MACS: Final = lazy(r"\bmac|\bmps\b|metal\b|apple|苹果|芯片|\bchip|unified|mlx", re.I)

UNKNOWN_VARIANT: Final = {
    "apple": lazy(r"[ \-]{0,2}(?:pro|max|ultra)(?![a-z])", re.I),
    "nvidia": lazy(r"[ \-]{0,2}(?:ti|super|laptop|mobile)(?![a-z])", re.I),
    "amd": lazy(r"[ \-]{0,2}(?:xtx?|gre)(?![a-z])", re.I),
    "other": lazy(r"[ \-]{0,2}[0-9]{1,2}(?![0-9a-z.])", re.I),
    "intel": lazy(r"[ \-]{0,2}[0-9]{1,2}(?![0-9a-z.])", re.I),
}
"""By vendor, what stands behind a name and makes it another product: ``M5 Max``, ``4080 Ti``, ``Trainium 3``."""
PRODUCT_WORDS: Final = words("ti super laptop ultra")
"""Words that each make another product of the same number."""
OWN_SIZE: Final = lazy(r"[ \t\-_]{0,2}[(（]?[ \t]{0,1}([0-9]{1,3})[ \-]?gi?b?(?![a-z0-9])", re.I | re.A)
"""A size that stands right behind a name, and so is the card's."""
NOT_ITS_SIZE: Final = lazy(
    r"[)）]?[ \t]{0,2}(?:的|of\b|ram\b|ddr|host|cpu|system|swap|free\b|used\b|left\b|available|allocated|reserved|model"
    r"|checkpoint|weights|dataset|file|limit|per\b|/|[.,][0-9]|内存|主存|空闲|已用|剩余|占用|可用|模型|权重)",
    re.I,
)
"""What follows a size that is none of a card."""
BOX_SIZES_GB: Final = frozenset(
    (2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 18, 20, 22, 24, 28, 32, 36, 40, 44, 48, 64, 72, 80, 90, 94, 96, 108, 120)
) | frozenset((128, 141, 144, 160, 180, 186, 192, 256, 288, 384, 432, 512, 576, 768))
"""Sizes that cards and chips are sold with."""

VENDOR_WORDS: Final = words(
    "nvidia geforce tesla quadro rtx gtx titan radeon rx instinct amd ascend huawei intel arc apple jetson agx google"
    " cloud habana atlas npu mac macbook gpu graphics card cuda 昇腾 华为 英伟达 苹果 tensorcore data center"
)
NEUTRAL: Final = words(
    "gpu gpus graphics tensor core cores card cards vram memory generation edition with each mig nvidia chip device s"
)
CARD_WORDS: Final = words("gpu gpus card cards")
SAME: Final = {
    "昇腾": "ascend",
    "华为": "huawei",
    "英伟达": "nvidia",
    "苹果": "apple",
    "mobile": "laptop",
    "maxq": "laptop",
    "sxm5": "sxm",
}
