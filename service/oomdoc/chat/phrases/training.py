"""Words for how a model is trained: objective, method, optimizer, precision, sharding."""

from __future__ import annotations

from typing import Final

from oomdoc.chat.phrases.phrase import Phrase, says

__all__ = ["CHOICES", "OPTIMIZERS", "PAGED"]

PAGED: Final = "paged"
"""An optimizer said only by that property: the paged form of the present one."""

OPTIMIZERS: Final[tuple[Phrase, ...]] = (
    says(
        "optimizer",
        r"\bpaged[\s_-]adam\w{0,2}[\s_-]8[\s_-]?bit\b|\bpaged\s8[\s-]?bit\sadam\w{0,2}|分页\s?8\s?(?:bit|位|比特)",
        "paged_adamw_8bit",
    ),
    says(
        "optimizer",
        r"\b(?:8[\s_-]?bit\s(?:adam\w{0,2}|optimi[sz]er)|adamw?[\s_-]?(?:bnb[\s_-])?8[\s_-]?bit)\b|8\s?(?:位|比特|bit)\s?(?:的)?\s?(?:adamw?|优化器)",
        "adamw_8bit",
    ),
    says("optimizer", r"\bpaged[\s_-]adam\w{0,2}\b(?![\s_-]8)", "paged_adamw"),
    says("optimizer", r"\bpaged\b(?!\s?att)|分页(?:版|优化器)", PAGED),
    says("optimizer", r"\badafactor\b", "adafactor"),
    says("optimizer", r"\blion[\s_-]?8[\s_-]?bit\b|\b8[\s-]?bit\slion\b", "lion_8bit"),
    says("optimizer", r"\blion\b", "lion"),
    says("optimizer", r"\bmuon\b", "muon"),
    says("optimizer", r"\bsgd\s(?:with\s|\+\s?)?momentum\b", "sgd_momentum"),
    says("optimizer", r"\bsgd\b", "sgd"),
    says(
        "optimizer",
        r"\b(?:(?:normal|regular|plain|standard|full|32[\s-]?bit|fp32|torch|fused|vanilla|ordinary)\s)?adamw?(?:[\s_-]torch(?:[\s_-]fused)?)?\b(?![\s_-]?(?:8|4|mini|off))"
        r"|(?:普通|正常|原来|标准)的?\s?(?:adamw?|优化器)",
        "adamw",
    ),
)

CHOICES: Final[tuple[Phrase, ...]] = (
    says(
        "sharding", r"\bzero[\s_-]?(?:stage[\s_-]?)?3\b|\bz3\b|(?<=_)z3(?=_)|\bstage[\s_-]?3\b|\bds[\s_]?z?3\b", "zero3"
    ),
    says(
        "sharding", r"\bzero[\s_-]?(?:stage[\s_-]?)?2\b|\bz2\b|(?<=_)z2(?=_)|\bstage[\s_-]?2\b|\bds[\s_]?z?2\b", "zero2"
    ),
    says("sharding", r"\bzero[\s_-]?(?:stage[\s_-]?)?1\b|\bz1\b|\bstage[\s_-]?1\b", "zero1"),
    says(
        "sharding",
        r"\b(?:no|without|drop|disable)\s(?:any\s)?(?:sharding|deepspeed)\b|不(?:做|要|用)?分片|不用\s?deepspeed|\bunsharded\b",
        "none",
    ),
    says("sharding", r"\bfsdp[\s_-]?2\b|\bfully_shard\b", "fsdp2"),
    says("sharding", r"\bshard[\s_-]grad[\s_-]op\b", "shard-grad-op"),
    says("sharding", r"\bfsdp\b(?![\s_-]?2)", "fsdp"),
    says("sharding", r"\bhsdp\b", "hsdp"),
    says("sharding", r"\bdistributed[\s_-]optimi[sz]er\b|分布式优化器", "distributed-optimizer"),
    says("sharding", r"(?:plain|pure|just|普通|纯)\s?ddp\b|\bddp\b", "ddp"),
    says("method", r"\bq-?lora\b", "qlora", (("quant", "nf4"),)),
    says("method", r"(?<![a-z])(?<!q)(?<!q-)(?:lora|dora)\b(?!\s?(?:rank|alpha|r\b))", "lora"),
    says(
        "method",
        r"\bfull[\s-](?:param(?:eter)?s?|weights?|fine-?tun(?:e|ing)|ft|training)\b(?:\sfine-?tun\w{0,4})?|\bfull\sfine[\s-]?tun\w{0,4}|全参数?(?:微调|训练)?|全量(?:微调)?",
        "full",
    ),
    says("method", r"\bfreeze\b(?!\sthe\s(?:vision|vit|visual))(?!\s(?:vision|vit))|冻结(?:大部分|部分)", "freeze"),
    says("method", r"\bgalore\b", "galore"),
    says(
        "autocast",
        r"\b(?:autocast|amp|mixed\sprecision)\s?(?:to|=|in|with)?\s?bf16\b|bf16\s?(?:混合精度|autocast|amp)",
        "bf16",
    ),
    says(
        "autocast",
        r"\b(?:autocast|amp|mixed\sprecision)\s?(?:to|=|in|with)?\s?fp16\b|fp16\s?(?:混合精度|autocast|amp)",
        "fp16",
    ),
    says("param_dtype", r"\b(?:pure\s)?bf16\b|\bbfloat16\b", "bf16"),
    says("param_dtype", r"\bfp16\b|\bfloat16\b|\bhalf[\s-]precision\b|半精度", "fp16"),
    says("param_dtype", r"\bfp32\b|\bfloat32\b|\bfull\sprecision\b|全精度|单精度", "fp32"),
    *(
        says("objective", rf"(?<![a-z]){name}(?![a-z])", name)
        for name in ("sft", "dpo", "orpo", "simpo", "kto", "ppo", "grpo")
    ),
    says(
        "objective",
        r"\breward\smodel(?:ling|ing)?\s?(?:training)?\b(?<=ing)|\brm\s(?:training|train)\b|\btrain\w{0,3}\s(?:an?\s|the\s)?(?:reward\smodel|rm)\b|奖励模型训练|训练?\s?(?:rm|奖励模型)",
        "rm",
    ),
    says("objective", r"\bpre-?train(?:ing)?\b|预训练", "pretrain"),
    says("objective", r"\binference\b|\bserving\b|推理|部署", "inference"),
)
