"""What a plain question wants to know: whether it fits, how much it takes, how large it may be, how many cards.

Questions in the field's ordinary words, English or Chinese; a word decides only where the facts leave something open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from oomdoc.evidence import Evidence
from oomdoc.intake.sieve import Expression

__all__ = ["Asked", "Wanted", "asked_in", "asked_of", "pairs_in"]

Wanted = Literal["fit", "amount", "batch", "length", "cards"]
_I: Final = re.IGNORECASE | re.ASCII
_MOST_CHARACTERS: Final = 4000
_PAIR: Final = re.compile(
    r"(?<![\w.-])([a-z][a-z_]{1,24}(?:\.[a-z_]{1,24})?) ?= ?(\"[^\"\n]{1,60}\"|[^\s,;，；。]{1,60})"
)
_WORDING: Final[tuple[tuple[Wanted, str], ...]] = (
    (
        "cards",
        r"\bhow many (?:more )?(?:of (?:them|these|those)|(?:[\w-]{1,16} ){0,4}?(?:gpus?|cards?|nodes?"
        r"|[ah]\d{2,3}s?|[hblv]\d{1,3}0{1,2}s?|"
        r"rtx[ -]?\d{4}s?|\d{4}s|mi\d{3}x?s?))|\bnumber of (?:gpus|cards)|(?:几|多少)(?:张|块|卡|台|个)(?!参数)",
    ),
    (
        "batch",
        r"\b(?:largest|biggest|max(?:imum)?|highest|what|which|how (?:large|big|far|high"
        r"|much)(?: an?)?)\b[^.?!\n]{0,40}batch"
        r"|\bbatch[ _-]?size\b[^.?!\n]{0,24}(?:can i|could i|possible|fits?\b)|batch[^。？\n]{0,12}(?:最大|多大"
        r"|开到多少|设多少|能开)"
        r"|(?:最大|多大)[^。？\n]{0,10}batch",
    ),
    (
        "length",
        r"\bhow many tokens\b|\b(?:longest|largest|max(?:imum)?|how (?:long|large"
        r"|big)(?: an?)?)\b[^.?!\n]{0,40}\b(?:seq|context|length|ctx|prompt)"
        r"|(?:最大|最长|多长|多大)[^。？\n]{0,10}(?:上下文|序列|长度|ctx|context)"
        r"|(?:上下文|序列|长度)[^。？\n]{0,10}(?:最大|最长|多长|多少|能开)",
    ),
    (
        "amount",
        r"\bhow much\b|\bhow many (?:gb|gib|gigabytes)\b|\bwhat (?:gpu|card|hardware|vram|memory)\b|\b(?:vram"
        r"|memory) (?:requirements?|needed|needs?)\b"
        r"|多少(?:[gG]|显存|内存)|(?:显存|内存)[^。？\n]{0,6}多少|要多大(?:显存|内存)|什么(?:显卡|卡|配置)",
    ),
)
_WANTED: Final = tuple((wanted, Expression(pattern, _I)) for wanted, pattern in _WORDING)
_TRAINS: Final = Expression(
    r"\b(?:pre-?)?train(?:s|er|ing|able)?\b|fine[- ]?tun|\bq?lora\b|\bsft\b|\b(?:dpo|orpo|kto|simpo|ppo"
    r"|grpo|rlhf)\b|\boptimi[sz]er|\badamw?\b"
    r"|gradient|\bzero-?[123]\b|\bfsdp\b|\bdeepspeed\b|micro[-_ ]?batch"
    r"|训练|微调|全参|优化器|梯度|能不能训|训得",
    _I,
)
_SERVES: Final = Expression(
    r"\bserv(?:e|es|ing|er)\b|\binfer(?:ence|ring)?\b|\bdeploy\w{0,6}\b|\bhost(?:ing)?\b(?! ?(?:memory"
    r"|ram|mem))|\bvllm\b|\bsglang\b|\bllama\.cpp\b|\bollama\b"
    r"|\blm ?studio\b|\btgi\b|\bgguf\b|\bchat with\b|\brun(?:ning)?\b|\bload(?:ing)?\b|\bfits?\b"
    r"|\bgenerat\w{1,4}\b|\bnum_ctx\b"
    r"|推理|部署|服务|加载|跑|运行|量化|装得下|放得下",
    _I,
)
_FORMATS: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (name, Expression(pattern, _I))
    for name, pattern in (
        ("awq-int4", r"\bawq\b"),
        ("gptq-int4", r"\bgptq\b"),
        # llama.cpp's blocks have no name of their own in a job: those of the next larger size stand for them.
        ("awq-int4", r"\bi?q[234](?:_k(?:_[sml])?|_0|_1|_xx?s)?\b"),
        ("int8", r"\bq[568](?:_k(?:_[sml])?|_0|_1)?\b"),
        ("fp8", r"\bfp8\b|\bfloat8\b|\b[ew]4m3\b"),
        ("int8", r"\bint8\b|\b8[- ]?bits?\b|\bload_in_8bit\b|8 ?比特|8 ?位量化"),
        ("nf4", r"\bint4\b|\b4[- ]?bits?\b|\bnf4\b|\bload_in_4bit\b|\bbnb\b|4 ?比特|4 ?位量化|四位量化"),
        (
            "none",
            r"\bunquanti[sz]ed\b|\bbf16\b|\bfp16\b|\bbfloat16\b|\bfloat16\b|\bhalf precision\b|\b16[- ]?bits?\b"
            r"|不量化|半精度",
        ),
    )
)


_FULL: Final = Expression(
    r"\bfull(?:y)?(?:[- ](?:parameter|param|weights?|model))?\b(?![- ](?:context|length|precision"
    r"|sequence|sharding|shard|size|speed|node|recompute))"
    r"|全参|全量",
    _I,
)
_SCRATCH: Final = Expression(r"\bfrom scratch\b|\bpre-?train(?:ing)?\b|从头|从零|预训练", _I)
_ENGINES: Final = tuple(
    (name, Expression(pattern, _I))
    for name, pattern in (
        ("ollama", r"\bollama\b|\bnum_ctx\b"),
        ("llama.cpp", r"\bllama[.-]?cpp\b|\bllama-server\b|\bgguf\b|\blm ?studio\b|\bkobold"),
        ("sglang", r"\bsglang\b"),
        ("tgi", r"\btgi\b|\btext-generation-inference\b"),
        ("vllm", r"\bvllm\b"),
    )
)
_PURE: Final = Expression(r"\bpure[- _]?(?:bf16|fp16|16)|\b(?:bf16|fp16)[- ]only\b|纯 ?(?:bf16|fp16|半精度)", _I)


_LENGTH: Final = Expression(
    r"(?<![\w.,-])(?:(?P<a>\d{1,3}(?:,\d{3})|\d{3,7}|\d{1,4} ?k|\d{1,2} ?m)[- ]?(?:ctx|context|tokens?"
    r"|seq(?:uence)?(?: length)?|length|上下文|长度|token)"
    r"|(?:num_ctx|n_ctx|ctx(?:-size)?|context(?:[ _-](?:length|window|size))?"
    r"|seq(?:uence)?(?:[ _-]?len(?:gth)?)?|max[_ ](?:seq_)?len(?:gth)?|length|上下文|序列长度|序列|长度)"
    r"(?: of| is|为|是)?[ :=]{0,3}(?P<b>\d{1,3}(?:,\d{3})|\d{3,7}|\d{1,4} ?k|\d{1,2} ?m)(?![\w.]))",
    _I,
)


_CAPACITY: Final = Expression(
    r"(?<![\w.])(?P<a>\d{1,3}) ?(?:GiB|GB|G)\b(?= (?:of )?(?:v?ram|gpu|card|video|enough)| ?(?:显存|显卡|的卡"
    r"|够))(?! (?:system|host|ram))"
    r"|\b(?:vram|gpu memory|card)[^.?\n]{0,12}?(?P<b>\d{1,3}) ?(?:GiB|GB|G)\b|显存(?:只有|有"
    r"|为)? ?(?P<c>\d{1,3}) ?(?:GiB|GB|G)",
    _I,
)


def _capacity(text: str) -> float | None:
    found = _CAPACITY.search(text)
    size = float(found["a"] or found["b"] or found["c"]) if found is not None else 0.0
    return size if 2 <= size <= 512 else None


def _length(text: str) -> int | None:
    found = _LENGTH.search(text)
    if found is None:
        return None
    number = (found["a"] or found["b"]).replace(",", "").replace(" ", "").lower()
    unit = {"k": 1024, "m": 1 << 20}.get(number[-1])
    size = int(number[:-1]) * unit if unit else int(number)
    return size if 16 <= size <= 1 << 22 else None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, and what the words say of the run that the facts may leave open."""

    wanted: Wanted = "fit"
    trains: bool = False
    serves: bool = False
    full: bool = False
    """Whether all weights are said to be trained."""
    scratch: bool = False
    engine: str | None = None
    """The engine that is named."""
    capacity_gib: float | None = None
    """What one card holds, where only that is said."""
    length: int | None = None
    """Tokens of context or of a sample."""
    pure: bool = False
    """Whether training is said to be in 16 bits throughout."""
    quant: str | None = None
    """How the weights are stored, in the words of a job's ``quant`` (``none``: 16 bits)."""


def asked_in(prose: str) -> Asked:
    """What the words of a question want; ``fit`` where nothing else is asked."""
    text = prose[:_MOST_CHARACTERS]
    wanted: Wanted = next((name for name, pattern in _WANTED if pattern.search(text)), "fit")
    return Asked(
        wanted=wanted,
        trains=_TRAINS.search(text) is not None,
        serves=_SERVES.search(text) is not None,
        capacity_gib=_capacity(text),
        length=_length(text),
        full=_FULL.search(text) is not None,
        scratch=_SCRATCH.search(text) is not None,
        engine=next((name for name, pattern in _ENGINES if pattern.search(text)), None),
        pure=_PURE.search(text) is not None,
        quant=next((name for name, pattern in _FORMATS if pattern.search(text)), None),
    )


def asked_of(evidence: Evidence, *, failed: bool = False) -> Asked:
    """What the words of an input ask for; of one without words, what its documents are about.

    :param failed: whether it tells of a failure: then the failing lines count too.
    """
    if failed:
        return asked_in(f"{evidence.prose}\n{evidence.digest}")
    return asked_in(evidence.prose or "\n".join(document.text[:2000] for document in evidence.documents))


def pairs_in(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """``field=value`` as written in the words, in order."""
    found = _PAIR.finditer(evidence.prose[:_MOST_CHARACTERS])
    return tuple((match[1], match[2].strip("\"'`,;，；。")) for match in found)
