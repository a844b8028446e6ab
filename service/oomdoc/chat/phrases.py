"""What-if phrases: how people say that one field of the job should change, in English and Chinese.

One row a way of saying it: the field, a bounded pattern whose group ``n`` is a number (or none), and the value. The
patterns run over one short turn, never over pasted logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from oomdoc.chat.numbers import NUMBER

__all__ = ["FIELD_NAMES", "PHRASES", "Phrase"]


@dataclass(frozen=True, slots=True)
class Phrase:
    """``value`` is a constant, or ``None`` where group ``n`` (or ``n2``) holds the number. ``also`` sets further fields."""

    field: str
    pattern: re.Pattern[str]
    value: Any = None
    convert: Callable[[float], Any] = int
    also: tuple[tuple[str, Any], ...] = ()


def _number(field: str, names: str, *, units: str = "", convert: Callable[[float], Any] = int) -> list[Phrase]:
    """``seq 8192``, ``seq_len=8192``, ``seq to 8192``, ``length down to 4096``, ``长度降到 4096``; ``units``: ``8192 tokens``."""
    link = r"[\s_=:：]{0,3}(?:from\s\d{1,7}k?\s(?:down\s|up\s)?to|is|of|to|at|was|be|down\sto|up\sto|back\sto|size|length|len|就|只|再|先|也)?\s{0,2}"
    verb = r"(?:改成|改为|改到|换成|设成|设为|设置为|调成|调到|调整到|降到|降低到|降为|减到|减少到|缩到|缩短到|加到|增加到|提到|提高到|升到|用|为|是|到|=|从\s?\d{1,7}\s?(?:降|改|减|加|升)?(?:到|成|为))?\s{0,2}"
    found = [Phrase(field, re.compile(rf"(?i)(?:{names}){link}{verb}(?P<n>{NUMBER})"), convert=convert)]
    if units:
        found.append(Phrase(field, re.compile(rf"(?i)(?P<n>{NUMBER})\s?(?:{units})"), convert=convert))
    return found


def _word(field: str, pattern: str, value: Any, also: tuple[tuple[str, Any], ...] = ()) -> Phrase:
    return Phrase(field, re.compile(rf"(?i)(?:{pattern})"), value=value, also=also)


_OFF = r"(?:no|without|disable|drop|remove|turn\soff|switch\soff|stop|not\susing)\s(?:the\s|any\s)?"
_ZH_OFF = r"(?:不用|不开|不要|关掉|关闭|关|去掉|取消|别用|别开|没有|停用|不)\s?"
_ZH_OFF_AFTER = r"\s?(?:关掉|关闭|去掉|取消|不要了|不用了|不开了|停掉)"
_CKPT = r"(?:gradient\s|activation\s|grad\s)?(?:checkpoint(?:ing|s)?|recompute|recomputation|ckpt)\b|梯度检查点|激活重计算|重计算|梯度重算|激活检查点"
_OFFLOAD = r"(?:cpu\s)?off-?load(?:ing)?\b|卸载"
_LIGER = r"liger(?:[\s_-]kernel)?\b|fused[\s_-](?:ce|loss|cross[\s_-]entropy|linear[\s_-]ce)|chunked[\s_-](?:ce|loss|cross[\s_-]entropy)|cut[\s_-]cross[\s_-]entropy|融合(?:的)?(?:交叉熵|损失|loss)|分块(?:的)?(?:交叉熵|损失|loss)"

_PHRASES: Final[tuple[Phrase, ...]] = (
    *_number(
        "completion_len",
        r"\bmax[\s_]completion[\s_]len(?:gth)?\b|\bcompletion(?:[\s_]len(?:gth)?)?\b|\bresponse[\s_]len(?:gth)?\b|\bmax[\s_]new[\s_]tokens\b|生成长度|回复长度|输出长度",
    ),
    *_number("prompt_len", r"\b(?:max[\s_])?prompt[\s_]len(?:gth)?\b|提示长度|输入长度"),
    *_number("lora.alpha", r"\b(?:lora[\s_])?alpha\b"),
    _word(
        "extra_models",
        r"\b(?:no|without|drop|remove)\s(?:a\s|the\s)?ref(?:erence)?(?:\smodel)?\b|(?:不用|去掉|不要)参考模型|\bbeta\s?[=:]?\s?0(?![.\d])",
        (),
    ),
    _word(
        "method",
        r"\b(?:forget|drop|no|without|stop|instead\sof|rather\sthan|not\susing)\s(?:the\s)?q?-?lora\b|(?<!什么)(?<!啥)(?<!何)(?<!怎么)(?:不用|去掉|不要|取消)\s?q?lora",
        "full",
    ),
    Phrase(
        "capacity_gib",
        re.compile(
            r"(?i)(?P<n>\d{2,3})\s?Gi?B?\s?(?:of\s)?(?:cards?|gpus?|vram|显卡|的?\s?卡|显存)|(?:\bcards?|\bgpus?|\bvram|显存|每张卡|单卡)\s?(?:are|is|have|has|has\sonly|only|有|是|只有|为)?\s?(?P<n2>\d{2,3})\s?G(?:i?B)?(?![\w.])"
        ),
        convert=float,
    ),
    _word("optimizer", r"\bpaged[\s_]adam\w{0,2}[\s_]8[\s_]?bit\b", "paged_adamw_8bit"),
    _word(
        "attention",
        r"(?:no|without|disable|turn\soff)\s(?:the\s)?flash\w{0,2}[\s_-]?att\w{0,7}|(?:没有|不用|关掉|不开|没装)\s?flash[\s_-]?att\w{0,7}",
        "sdpa",
    ),
    _word("rollout.colocated", r"\bcolocat\w{0,3}\soff\b|\b(?:no|not|without|stop|disable)\scolocat\w{0,4}", False),
    *_number(
        "seq_len",
        r"\bseq(?:uence)?(?:[\s_-]?len(?:gth)?)?\b|\bcut-?off(?:[\s_]len)?\b|\bmax[\s_](?:seq(?:uence)?[\s_])?len(?:gth)?\b|\bcontext(?:[\s_]length)?\b|\bctx\b|\bblock[\s_]size\b|序列长度|上下文(?:长度)?|最大长度|截断长度|长度|序列",
        units=r"(?:k\s)?tokens?\b(?!\s?/\s?s)|ctx\b|(?:k\s)?context\b",
    ),
    *_number(
        "micro_batch",
        r"(?:per[\s_-]device[\s_](?:train[\s_])?)?(?<![A-Za-z])(?:micro[\s_-]?)?batch(?:[\s_-]?size)?(?:[\s_]per[\s_](?:gpu|device))?\b|\bmbs\b|\bbs\b|\bmb\b|批大小|批次(?:大小)?|单卡\s?(?:batch|批)|批量",
    ),
    *_number(
        "grad_accum",
        r"\b(?:grad(?:ient)?[\s_-]?)?accum(?:ulation)?(?:[\s_]steps)?\b|\bga\b|梯度累积(?:步数)?|累积步数|累积",
    ),
    *_number(
        "generations",
        r"\bnum[\s_]generations\b|\bgenerations\b|\brollouts?\sper\sprompt\b|\bgroup\ssize\b|采样数|生成数",
        units=r"generations\b|completions?\b(?:\sper\sprompt)?|rollouts\b",
    ),
    *_number("tp", r"\btp\b|\btensor[\s_-]parallel(?:[\s_]size)?\b|张量并行"),
    *_number("pp", r"\bpp\b|\bpipeline[\s_-]parallel(?:[\s_]size)?\b|流水线并行|流水并行"),
    *_number("cp", r"\bcp\b|\bcontext[\s_-]parallel(?:[\s_]size)?\b|上下文并行"),
    *_number("ep", r"\bep\b|\bexpert[\s_-]parallel(?:[\s_]size)?\b|专家并行"),
    *_number("sp", r"\b(?:ulysses|sequence[\s_-]parallel(?:[\s_]size)?)\b|序列并行"),
    *_number(
        "lora.r",
        r"\b(?:lora[\s_]?)?rank\b|\blora[\s_]?r\b|\br\b(?=\s?(?:[=:]|to|改成|改为|设为|设成|调到|是|为)?\s?\d)|(?:lora\s?的?)?秩",
    ),
    *_number("nodes", r"\bnodes\b|\bnnodes\b|节点数", units=r"nodes?\b|machines?\b|个?节点|台机器|台"),
    *_number(
        "gpus",
        r"\bgpus\b|\bnum[\s_]gpus\b|卡数|显卡数",
        units=r"gpus?\b|cards?\b|devices?\b|(?:张|块|个|片)?\s?(?:显卡|卡|gpu)",
    ),
    *_number("serving.max_model_len", r"\bmax[\s_-]model[\s_-]len(?:gth)?\b"),
    *_number("serving.max_num_seqs", r"\bmax[\s_-]num[\s_-]seqs\b|\bconcurren(?:cy|t\srequests)\b|并发(?:数)?"),
    *_number("max_pixels", r"\bmax[\s_]pixels\b|最大像素"),
    *_number("images", r"\bimages\b(?:\sper\ssample)?", units=r"images?\b|张图片?|幅图"),
    *_number("video_frames", r"\b(?:video\s)?frames\b|帧数", units=r"frames?\b|帧"),
    Phrase(
        "gpu_memory_utilization",
        re.compile(
            r"(?i)(?:gpu[\s_-]?mem(?:ory)?[\s_-]?util(?:i[sz]ation)?|\butil(?:i[sz]ation)?\b|显存(?:占用|利用)率?|mem[\s_-]fraction(?:[\s_-]static)?)[\s_=:]{0,3}(?:to|of|at|is|改成|改为|设为|降到|调到|到|为|是)?\s?(?P<n>0?\.\d{1,3}|\d{2}\s?%)"
        ),
        convert=lambda n: n / 100 if n > 1 else n,
    ),
    _word("sharding", r"\bzero[\s_-]?3\b|\bz3\b|\bstage[\s_-]?3\b|\bds[\s_]?z?3\b", "zero3"),
    _word("sharding", r"\bzero[\s_-]?2\b|\bz2\b|\bstage[\s_-]?2\b", "zero2"),
    _word("sharding", r"\bzero[\s_-]?1\b|\bz1\b|\bstage[\s_-]?1\b", "zero1"),
    _word("sharding", r"\bfsdp[\s_-]?2\b|\bfully_shard\b", "fsdp2"),
    _word("sharding", r"\bfsdp\b(?![\s_-]?2)", "fsdp"),
    _word("sharding", r"\bhsdp\b", "hsdp"),
    _word("sharding", r"(?:plain|pure|just|普通|纯)\s?ddp\b|\bddp\b", "ddp"),
    _word("method", r"\bq-?lora\b", "qlora", (("quant", "nf4"),)),
    _word("method", r"(?<![a-z])(?<!q)(?<!q-)(?:lora|dora)\b(?!\s?(?:rank|r\b))", "lora"),
    _word(
        "method",
        r"\bfull[\s-](?:param(?:eter)?s?|fine-?tun(?:e|ing)|ft|training)\b|\bfull\sfinetun\w{0,4}|全参数?|全量",
        "full",
    ),
    _word("method", r"\bfreeze\b(?!\sthe\svision)|冻结(?:大部分|部分)", "freeze"),
    _word("method", r"\bgalore\b", "galore"),
    _word(
        "quant",
        r"\b(?:un-?quanti[sz]ed|not\squanti[sz]ed|no\squanti[sz]ation|without\squanti[sz]ation)\b|不量化|取消量化|非量化",
        "none",
    ),
    _word("quant", r"\b(?:load[\s_]in[\s_])?8[\s_-]?bit\b(?!\s?(?:adam|optim))|\bint8\b|8\s?比特|8\s?位量化", "int8"),
    _word(
        "quant",
        r"\b(?:load[\s_]in[\s_])?4[\s_-]?bit\b(?!\s?(?:adam|optim))|\bnf4\b|\bint4\b|4\s?比特|4\s?位量化",
        "nf4",
    ),
    _word("quant", r"\bfp8\s(?:weights?|quant\w{0,8})\b|fp8\s?(?:权重|量化)", "fp8"),
    _word("quant", r"\bawq\b", "awq-int4"),
    _word("quant", r"\bgptq\b", "gptq-int4"),
    _word(
        "serving.kv_dtype",
        r"\bfp8\s(?:kv(?:[\s-]?cache)?)\b|\bkv[\s_-]?(?:cache)?(?:[\s_-]?dtype)?\s?(?:=|:|in|to|as|改成|用)?\s?fp8\b|kv\s?(?:缓存|cache)\s?(?:量化|用|改成)\s?(?:成|到)?\s?fp8",
        "fp8",
    ),
    _word(
        "optimizer",
        r"\b(?:8[\s_-]?bit\s(?:adam\w{0,2}|optimi[sz]er)|adamw?[\s_-]?8[\s_-]?bit)\b|8\s?(?:位|比特|bit)\s?(?:的)?\s?(?:adamw?|优化器)",
        "adamw_8bit",
    ),
    _word("optimizer", r"\bpaged[\s_]adam\w{0,2}\b(?![\s_]8)", "paged_adamw"),
    _word("optimizer", r"\badafactor\b", "adafactor"),
    _word("optimizer", r"\blion\b(?!\s?8)", "lion"),
    _word("optimizer", r"\bmuon\b", "muon"),
    _word("optimizer", r"\bsgd\b", "sgd"),
    _word("attention", r"\bflash[\s_-]?att(?:entio)?n(?:tion)?[\s_-]?3\b|\bfa3\b", "flash3"),
    _word("attention", r"\bflash[\s_-]?att(?:entio)?n(?:tion)?(?:[\s_-]?2)?\b|\bfa2\b|\bflash2\b", "flash2"),
    _word("attention", r"\bsdpa\b", "sdpa"),
    _word("attention", r"\beager\sattention\b|\beager\b(?!\smode)", "eager"),
    _word(
        "serving.cuda_graphs",
        r"\beager\smode\b|\benforce[\s_-]eager\b|(?:no|without|disable)\scuda\sgraphs?|(?:不用|关掉|关闭)\s?cuda\s?graph",
        False,
    ),
    _word(
        "grad_ckpt", rf"(?:{_OFF})(?:{_CKPT})|(?:{_ZH_OFF})(?:{_CKPT})|(?:{_CKPT})(?:\soff\b|{_ZH_OFF_AFTER})", False
    ),
    _word(
        "grad_ckpt",
        r"\bselective\s(?:activation\s)?(?:checkpointing|recompute|recomputation|ac)\b|选择性(?:重计算|检查点)",
        "selective",
    ),
    _word("grad_ckpt", rf"(?:{_CKPT})", True),
    _word(
        "fused_ce", rf"(?:{_OFF})(?:{_LIGER})|(?:{_ZH_OFF})(?:{_LIGER})|(?:{_LIGER})(?:\soff\b|{_ZH_OFF_AFTER})", False
    ),
    _word("fused_ce", rf"(?:{_LIGER})", True),
    _word(
        "packing",
        r"(?:no|without|disable|turn\soff)\spacking\b|(?:不|关掉|关闭|不用|取消)\s?(?:packing|打包)|packing\soff\b",
        False,
    ),
    _word("packing", r"\bpacking\b|\bpacked\b|打包", True),
    _word(
        "offload",
        rf"(?:{_OFF})(?:\w{{1,12}}\s)?(?:{_OFFLOAD})|(?:{_ZH_OFF})(?:{_OFFLOAD})|(?:{_OFFLOAD})(?:\soff\b|{_ZH_OFF_AFTER})",
        (),
    ),
    _word(
        "offload",
        rf"(?:optim\w{{0,12}}|优化器)(?:\s?states?|状态)?\s?(?:and|\+|&|,|和|与|、|以及)\s?(?:the\s)?(?:param\w{{0,8}}|weights?|参数|权重)\s?(?:也|都|一起)?\s?(?:{_OFFLOAD})|(?:{_OFFLOAD})\s?(?:both|everything|(?:the\s)?optim\w{{0,12}}(?:\sstates?)?\s?(?:and|\+|&)\s?(?:the\s)?(?:param\w{{0,8}}|weights?)|优化器(?:状态)?\s?(?:和|与|、)\s?(?:参数|权重))|(?:参数|权重)\s?(?:和|与|、)\s?优化器(?:状态)?\s?(?:都|也)?\s?(?:{_OFFLOAD})",
        ("optimizer", "param"),
    ),
    _word(
        "offload",
        rf"(?:param\w{{0,8}}|参数|权重)\s?(?:也|都)?\s?(?:{_OFFLOAD})|(?:{_OFFLOAD})\s?(?:the\s)?(?:param\w{{0,8}}|weights|参数|权重)",
        ("param",),
    ),
    _word(
        "offload",
        rf"(?:activations?|激活(?:值)?)\s?(?:{_OFFLOAD})|(?:{_OFFLOAD})\s?(?:the\s)?(?:activations?|激活(?:值)?)",
        ("activations",),
    ),
    _word(
        "offload",
        rf"(?:adam\w{{0,2}}|optim\w{{0,12}}(?:\sstates?)?|优化器(?:状态)?)\s?(?:{_OFFLOAD})|(?:{_OFFLOAD})\s?(?:the\s)?(?:adam|optim\w{{0,12}}|优化器(?:状态)?)|(?:{_OFFLOAD})(?:\s?to\s(?:the\s)?cpu|\s?到\s?(?:cpu|内存))?",
        ("optimizer",),
    ),
    _word("param_dtype", r"\b(?:pure\s)?bf16\b|\bbfloat16\b", "bf16"),
    _word("param_dtype", r"\bfp16\b|\bhalf\sprecision\b|半精度", "fp16"),
    _word("param_dtype", r"\bfp32\b|\bfloat32\b|\bfull\sprecision\b|全精度|单精度", "fp32"),
    *(
        _word("objective", rf"(?<![a-z]){name}(?![a-z])", name)
        for name in ("sft", "dpo", "orpo", "simpo", "kto", "ppo", "grpo")
    ),
    _word("objective", r"\bpre-?train(?:ing)?\b|预训练", "pretrain"),
    _word("objective", r"\binference\b|\bserving\b|推理|部署", "inference"),
    _word(
        "rollout.colocated",
        r"\b(?:separate|dedicated|own)\s(?:rollout\s|vllm\s|inference\s)?(?:gpus?|nodes?|cards?)\b|\bnot\scolocated?\b|(?:单独|分离|独立)(?:的)?(?:部署|显卡|卡|gpu|机器)",
        False,
    ),
    _word("rollout.colocated", r"\bcolocated?\b|共置|混合部署", True),
    _word("rollout.sleep", r"\bsleep\s(?:mode|level)\b|\bsleep\b|睡眠模式|休眠", True),
)
# What is said inside a longer phrase of another field: "8-bit adam" is an optimizer, "enforce eager" a server's mode.
_FIRST: Final = frozenset({"optimizer", "serving.cuda_graphs"})

PHRASES: Final[tuple[Phrase, ...]] = tuple(sorted(_PHRASES, key=lambda phrase: phrase.field not in _FIRST))
"""In order: for one field, the first phrase that matches wins."""

FIELD_NAMES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("seq_len", re.compile(r"(?i)\bseq\w{0,8}\b|\bcutoff\b|\blength\b|\bcontext\b|长度|序列|cutoff")),
    ("micro_batch", re.compile(r"(?i)\bbatch\b|\bbs\b|批")),
    ("gpus", re.compile(r"(?i)\bgpus?\b|\bcards?\b|卡")),
    ("method", re.compile(r"(?i)\blora\b|\bqlora\b|\bmethod\b|微调方式|全参")),
    ("sharding", re.compile(r"(?i)\bzero\b|\bfsdp\b|\bsharding\b|分片")),
    ("offload", re.compile(r"(?i)offload|卸载")),
    ("grad_ckpt", re.compile(r"(?i)checkpoint|recompute|重计算|检查点")),
    ("fused_ce", re.compile(r"(?i)liger|fused|融合")),
    ("quant", re.compile(r"(?i)quanti|量化|\bbit\b")),
    ("tp", re.compile(r"(?i)\btp\b|tensor parallel|张量并行")),
    ("pp", re.compile(r"(?i)\bpp\b|pipeline|流水")),
    ("optimizer", re.compile(r"(?i)optimi[sz]er|优化器")),
    ("objective", re.compile(r"(?i)\bdpo\b|\bsft\b|objective|目标")),
    ("model", re.compile(r"(?i)\bmodel\b|模型")),
)
"""How a turn names a field without giving it a value: "undo the seq change"."""
