"""How it was trained or served, in people's words: method, objective, batch, length, precision, sharding, offload.

Every entry is an expression with what it says; those that a negation or the account of another run precedes are
dropped or doubted. Values come before keys where languages put them there (``batch size 设成 1``, ``每卡 1``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.numbers import to_tokens
from oomdoc.intake.prose.stance import denied, negated, worked
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary

__all__ = ["read_traces", "read_training"]

_IS: Final = (
    r"(?: {0,2}(?:size|大小)?(?: per (?:device|gpu|core|card|rank))?\s{0,2}"
    r"(?: ?(?:is|of|to|into|was|set to|=|==|:|：|[(（~≈]"
    r"|为|是|(?:相关)?的?(?:参数)?[都均全](?:调|设|改)[成为到]|设成|设到|调到|调成|调整为|降到|减到|降低到|改到|开到"
    r"|设为|设置为|设置成|设置|改成|改为|只有|已经|最小"
    r"|(?:also|only|just|about|around|up)(?= )|down to|to just|每卡|每张卡|都是|with)){0,2}\s{0,2})"
)
_NUMBERS: Final[tuple[tuple[str, Expression, float], ...]] = tuple(
    (name, Expression(text, re.IGNORECASE | re.ASCII), sure)
    for name, text, sure in (
        (
            "micro_batch",
            r"(?<![A-Za-z0-9_-])(?:micro[-_ ]?|per[- _]device[ _])(?:train[ _])?batch(?:[- _]?(?:of )?size)[`\"']?"
            rf"?{_IS}(\d{{1,5}})(?![A-Za-z0-9_]|\.\d)",
            0.8,
        ),
        (
            "micro_batch",
            r"(?<!global )(?<!effective )(?<!total )(?<!eval )(?<!eval_)(?<![A-Za-z0-9_-])(?:train )"
            rf"?(?:b(?:at|et)ch(?:[- _]?size)?|bs|batchsize|批次大小|批大小|批量){_IS}(\d{{1,5}})(?![A-Za-z0-9_]"
            r"|\.\d)",
            0.7,
        ),
        (
            "seq_len",
            r"(?<!stopped )(?<!stops )(?:with|at|of) (?:up to )?(\d{1,3}(?:\.\d)?[kK]|\d{1,3},\d{3}|\d{3,6}) tokens\b"
            r"(?! ?(?:per second|/|generated|of output))",
            0.56,
        ),
        (
            "micro_batch",
            r"\((\d{1,4}) per (?:gpu|device)\)|(?:imgs?|images|samples|videos)_?p(?:er"
            r"|re)_gpu ?[=:]{1,2} ?(\d{1,4})(?!\w)|(?:每卡|每张卡|per gpu) ?(?:batch(?:[ _]?size)?)? ?(\d{1,3"
            r"})(?![\dGg.])",
            0.75,
        ),
        ("micro_batch", r"(?<![A-Za-z0-9_-])(?:went down to|down to) batch size \d{1,4} and even (\d{1,4})", 0.85),
        (
            "grad_accum",
            rf"(?:grad(?:ient)?[- _]?accum(?:ulation)?(?:[- _]?steps?)?|(?<![a-z])accum(?:ulat(?:e"
            rf"|ion))?(?:[- _]?steps?)?|(?<![a-z])gas?(?= ?[=:]? ?\d)"
            rf"|梯度累[积计]){_IS}(\d{{1,5}})(?![A"
            r"-Za-z0-9_]|\.\d)",
            0.8,
        ),
        (
            "seq_len",
            r"(?:(?:seq(?:uence)?|sentence|sample|context|max|cutoff)[- _]{0,2}"
            r"(?:seq(?:uence)?|sentence|input|context)?"
            r"[- _]?len(?:gth|ght|th)?|(?<![A-Za-z_])seq(?= \d)|context (?:window|size)"
            r"|context(?= (?:of )?\d{1,3} ?[kK])|context(?= of \d)"
            r"|(?<![\w-])length(?= ?[=:])|序列长度|最大长度|上下文(?:长度|窗口)?|窗口|长度|cutoff)"
            rf"{_IS}(\d[\d,_]{{0,8}}\d?(?:\.\d)? ?[kK]?)(?![\w.]*[GgBb]\b)",
            0.75,
        ),
        (
            "seq_len",
            r"(?:最大长度|长度|length|context)[^。.;；\n]{0,24}?(?:减到|降到|改到|reduced to"
            r"|down to) ?(\d[\d,]{0,8}[kK]?)",
            0.8,
        ),
        (
            "seq_len",
            r"(?<![\w.])(\d{1,3}(?:\.\d)?[kK]|\d{1,3},\d{3}|\d{3,6})[- ](?:tokens?(?: sequences?"
            r"| samples?| context)|context|sequences?\b|seq\b|的序列|长度|上下文)"
            r"|(?<![\w.])(\d{1,3}[kK]) ?(?:的序列|序列|上下文|context)",
            0.72,
        ),
        (
            "tp",
            r"(?<![A-Za-z0-9_-])(?:tp|tensor[- ]parallel(?:ism)?(?:[- ]size)?"
            r"|张量并行)(?: of| =|=|:)? {0,2}(\d{1,2})(?![A-Za-z0-9_]|\.\d)",
            0.7,
        ),
        (
            "pp",
            r"(?<![A-Za-z0-9_-])(?:pp|pipeline[- ]parallel(?:ism)?(?:[- ]size)?"
            r"|流水线并行)(?: of| =|=|:)? {0,2}(\d{1,2})(?![A-Za-z0-9_]|\.\d)",
            0.7,
        ),
        ("zero_stage", r"(?:zero|z)[- _]?(?:stage)?[- _:=]{0,3}([1-3])(?!\d|\.\d)", 0.75),
        (
            "zero_stage",
            r"ds_z(?:ero)?_?(?:stage)?_?([1-3])|deep ?speed[\w ]{0,12}[- ]stage[- _]?([1-3])"
            r"|zero_stage([1-3])|_zero([1-3])"
            r"|(?<![a-z])stage[- ]?([23])(?!\d)(?=,? (?:and|with|\+) [^.\n]{0,12}offload)",
            0.72,
        ),
    )
)
_WORDS: Final[tuple[tuple[str, Any, Expression, float], ...]] = tuple(
    (name, value, Expression(text, re.IGNORECASE | re.ASCII), sure)
    for name, value, text, sure in (
        (
            "method",
            "qlora",
            r"(?<![a-z])q-?lora(?![a-z])|4-?bit (?:lora|fine-?tun|[^.。\n]{0,16}peft)|(?:lora"
            r"|peft)[^.。\n]{0,30}(?:4[- ]?bit"
            r"|nf4|load_in_4bit)",
            0.8,
        ),
        ("method", "lora", r"(?<![a-z])(?<!q)(?<!alpaca-)lora(?!_|[a-z])", 0.7),
        ("method", "lora", r"(?:train|sft|tune|tuning)[_-]lora(?![a-z])|(?<![a-z])lora[_-](?:sft|train|tun)", 0.55),
        ("method", "lora", r"(?<![a-z])lora_(?:model|r\b|rank|dim\b)|PeftModel|peft/tuners|get_peft_model", 0.52),
        (
            "method",
            "full",
            r"fully? f[iu]ne[- ]?tun|full[- ](?:parameter |param |model )?(?:fine-?tun|tuning|ft\b"
            r"|sft|training)|(?:on|with|all) full param\w{0,7}|full parameters? (?:should be |are )?(?:fine-?tun"
            r"|train)|full[_-]finetune|fully fine-?tun|全参|全量(?:微调|训练|参数)|without (?:lora"
            r"|peft)|不用 ?lora",
            0.8,
        ),
        ("method", "freeze", r"freeze (?:tuning|training|finetun)|冻结微调", 0.6),
        ("dtype", "bf16", r"(?<![a-z\d])bf-?16(?![a-z\d])", 0.6),
        ("dtype", "bfloat16", r"(?<![a-z])bfloat16", 0.6),
        ("dtype", "fp16", r"(?<![a-z\d])fp-?16(?![a-z\d])|半精度|half precision", 0.58),
        ("dtype", "float16", r"(?<![a-z])float16", 0.57),
        (
            "dtype",
            "fp32",
            r"(?:train|tun|run|load|model|weight)\w{0,5} [^.\n]{0,12}\b(?:in|with|use"
            r"|using) (?:full[- ]precision|fp-?32|float32)(?! (?:master|optimi|cop|state"
            r"|grad|logit|mom))"
            r"|full precision|全精度|单精度",
            0.53,
        ),
        ("attention", "flash2", r"flash[- _]?att(?:entio)?n(?:[- _]?2)?|(?<![a-z])fa2(?![a-z\d])|flash att", 0.62),
        ("attention", "sdpa", r"(?<![a-z])sdpa(?![a-z])|scaled_dot_product_attention", 0.6),
        ("attention", "eager", r"eager att|attention[ ]?(?:is |= ?)?eager|vanilla attention", 0.6),
        (
            "grad_ckpt",
            True,
            r"grad(?:ient)?[- _]?checkpoint(?:ing)?(?!\w)|activation[- ]checkpointing"
            r"|checkpoint activations|梯度检查点|重计算|activation recomputation",
            0.62,
        ),
        (
            "fsdp",
            True,
            r"(?<![a-z])fsdp ?2?(?![a-z_])|fully ?sharded|fully_shard|FullyShardedDataParallel"
            r"|_composable/fsdp|full_shard",
            0.68,
        ),
        (
            "offload",
            ("optimizer",),
            r"adam[- ]offload|optimizer[- ]offload|offload(?:ing)?(?:[- ]the)?[- ]optimizer"
            r"|offload_optimizer=cpu|优化器卸载",
            0.7,
        ),
        ("offload", ("param",), r"param(?:eter)?s?[- ]offload|offload(?:ing)?[- ]param", 0.68),
        ("offload", ("optimizer", "param"), r"zero-?3?[- _+]?offload|z3_offload|cpu[- ]offload|offload", 0.55),
    )
)


_EITHER: Final = re.compile(r"\b(?:with (?:and|or)|both|even|or)\b|还是|无论|不管|即使", re.IGNORECASE | re.ASCII)
"""Before a denial: it was tried both ways."""
_STAGES: Final[tuple[tuple[str, Any, Expression, float], ...]] = tuple(
    ("zero_stage", stage, Expression(text, re.IGNORECASE), 0.65)
    for stage, text in (
        (
            3,
            r"zero_optimization[\"']?\s?[:=]\s?\{\s{0,4}[\"']?stage[\"']?\s?[:=]\s?3|deepspeed/runtime/zero/stage3\.py"
            r"|DeepSpeedZeroOptimizer_Stage3|zero/partition(?:_parameters|ed_param_coordinator)\.py"
            r"|(?<![a-z])zero\.Init\b",
        ),
        (2, r"zero_optimization[\"']?\s?[:=]\s?\{\s{0,4}[\"']?stage[\"']?\s?[:=]\s?2"),
    )
)
_ADAPTERS: Final[tuple[tuple[str, Any, Expression, float], ...]] = (
    (
        "method",
        "lora",
        Expression(r"LoraConfig\(|get_peft_model\(|trainable params: [\d,]{1,20} \|\| all params", re.IGNORECASE),
        0.62,
    ),
)
_TRACES: Final = Sieve(
    ((row[2],), row) for row in (*(row for row in _WORDS if row[0] in ("fsdp", "attention")), *_STAGES, *_ADAPTERS)
)


def read_traces(lines: list[Line], words: Vocabulary) -> Iterator[Fact]:
    """What logs and tracebacks show of attention and sharding: a frame inside ``_composable/fsdp`` is FSDP at work."""
    for line, rows in _TRACES.over(lines, words):
        for name, word, pattern, sure in rows:
            if (found := pattern.search(line.text)) is not None:
                yield Fact(name, word, line.span(found.start() + 1), "log", sure - 0.1)


def read_training(lines: list[Line], words: Vocabulary) -> Iterator[Fact]:
    """Facts from prose lines; a value that was denied is not a fact, one of another run is half of one."""
    for line, rows in _SIEVE.over(lines, words):
        for read in rows:
            yield from read(line)


def _of_number(name: str, pattern: Expression, sure: float, line: Line) -> Iterator[Fact]:
    for found in pattern.finditer(line.text):
        value = _number(next((g for g in found.groups() if g), ""))
        if value is not None and _plausible(name, value):
            yield _fact(line, name, value, found, sure)


def _of_word(name: str, word: Any, pattern: Expression, sure: float, line: Line) -> Iterator[Fact]:
    for found in pattern.finditer(line.text):
        off = negated(line.text, found.start()) or denied(line.text, found.end())
        if name == "grad_ckpt" and off:
            if _EITHER.search(line.text[max(0, found.start() - 20) : found.start()]) is None:
                yield _fact(line, name, False, found, sure)
        elif not off:
            yield _fact(line, name, word, found, sure)
        elif name == "method" and word in ("lora", "qlora"):
            yield _fact(line, "method", "full", found, 0.66)


_SIEVE: Final = Sieve(
    [
        *(((row[1],), partial(_of_number, *row)) for row in _NUMBERS),
        *(((row[2],), partial(_of_word, *row)) for row in (*_WORDS, *_ADAPTERS, *_STAGES)),
    ]
)


def _fact(line: Line, name: str, value: Any, found: re.Match[str], sure: float) -> Fact:
    if worked(line.text, found.start(), found.end()):
        sure = max(0.5, sure - 0.12)
    return Fact(name, value, line.span(found.start() + 1), "prose", sure)


def _number(text: str) -> int | None:
    value = to_tokens(text.strip()) if text else None
    return value if value else None


def _plausible(name: str, value: int) -> bool:
    low, high = {"seq_len": (16, 20_000_000), "micro_batch": (1, 8192), "tp": (1, 64), "pp": (1, 64)}.get(
        name, (1, 65536)
    )
    return low <= value <= high
