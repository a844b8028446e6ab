"""In which phase of a job it failed, in the words of people."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.sieve import Expression

__all__ = ["phase_hinted", "phase_of_prose"]

_I: Final = re.IGNORECASE | re.ASCII
_FAILS: Final = (
    r"(?:oom|被 ?kill|被杀|out.of.(?:cuda |gpu |video )?mem|memory (?:error|overflow)|爆(?:显存|内存|掉|了)?"
    r"|显存(?:溢出"
    r"|不足|不够|爆|超)|内存(?:溢出|不足|不够)|溢出|crash|fail|killed|runs? out|挤爆|炸(?:显存|内存|了))"
)
_X: Final = r"(?:[^.。\n]|\.(?=\w))"
"""Within a sentence; the dots of names and figures end none."""
_PROSE: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (phase, Expression(text, _I))
    for phase, text in (
        (
            "forward",
            rf"(?:{_FAILS}|errors?){_X}{{0,24}}\b(?:on|in|during|at) the (?:very )?(?:first )?forward(?: pass)?\b",
        ),
        (
            "weight-sync",
            r"(?:weight|parameter|model)s?[- ](?:sync\w{0,10}|update to|transfer to|broadcast)"
            rf"|sync\w{{0,10}} (?:the )?(?:weights|parameters|model)|\brefit\b"
            rf"|updat(?:e|ing) (?:the )?(?:weights|parameters) (?:of|in|to|on|from) (?:the )?(?:inference|vllm"
            rf"|sglang|rollout)"
            rf"|(?:resume|release)_memory_occupation[^.。\n]{{0,40}}{_FAILS}"
            rf"|wak(?:e|es|ing)[-_ ]?up\b[^.。\n]{{0,40}}{_FAILS}|{_FAILS}[^.。\n]{{0,40}}\bwak(?:e|es"
            rf"|ing)[-_ ]?up\b|(?:同步|更新)[^。\n]{{0,6}}(?:权重|参数)(?:到|给|至)|权重同步",
        ),
        (
            "load",
            r"(?:when|while|after|on|upon|by) (?:I )?(?:try(?:ing)? to )?resum(?:e|es|ing) (?:the |from |a "
            r"|my )?(?:training|checkpoint|run|last)"
            rf"|(?:resum(?:e|es|ing)|continu(?:e|es|ing) (?:the )?training)[^.。\n]{{0,60}}{_FAILS}|断点续训"
            rf"|恢复训练[^。\n]{{0,12}}{_FAILS}|(?:load"
            rf"|restor)\w{{0,3}}"
            r" (?:the )?(?:saved )?(?:states?|checkpoints?)[^.。\n]{0,24}(?:and )?(?:continue|resume)",
        ),
        (
            "save",
            rf"(?:when(?:ever)?|while|during|after|but|at the end)[^.。\n]{{0,40}}\b(?:sav(?:e"
            r"|es|ed|ing)|checkpointing\b(?<!gradient checkpointing)(?<!activation checkpointing)"
            rf"|checkpoint is)[^.。\n]{{0,60}}|\bsav(?:e|ing) (?:the |a )?(?:model"
            rf"|checkpoint|weights)[^.。\n]{{0,60}}{_FAILS}|保存(?![^。\n]{{0,12}}(?:梯度|激活|中间))[^。\n]{{0,24}}(?:时"
            rf"|爆|oom|溢出|的时候|会)|(?:save_pretrained|save_model|save_steps|checkpoint[^.。\n]{{0,30}} is"
            rf" saved)[^.。\n]{{0,40}}(?:{_FAILS}|保存)|合并(?:权重|模型)[^。\n]{{0,16}}(?:oom"
            r"|爆|溢出)"
            r"|(?:when|while|during|after)[^.。\n]{0,40}\bwrit(?:es?|ing) (?:the "
            r"|a )?(?:\w{1,14} )?(?:checkpoint|weights|shards)"
            rf"|(?:{_FAILS}|occurs?|happens?)[^.。\n]{{0,60}}"
            rf"(?:\bat save_steps|(?:\b|\.)save_(?:model|pretrained|checkpoint)\b|merge_and_unload)"
            rf"|\bmerg(?:e|ing) (?:the |a )?(?:lora|adapters?|peft)[^.。\n]{{0,60}}{_FAILS}"
            rf"|(?:export|导出)[^。\n]{{0,24}}(?:合并|merg)|(?:合并|merg)[^。\n]{{0,32}}(?:导出|export)"
            rf"|合并[^。\n]{{0,16}}(?:lora|权重|模型|适配器)?[^。\n]{{0,12}}(?:时|oom|爆|溢出)"
            rf"|\b(?:get|getting|gather(?:ing)?|collect(?:ing)?|consolidat\w{{1,4}})[^.。\n]{{0,16}}state[_ ]?dict"
            rf"|state[_ ]dict[^.。\n]{{0,24}}{_FAILS}"
            r"|after (?:the )?training (?:job )?(?:is |has |was )?(?:complete[sd]?|finish\w{0,3}|done|end\w{0,2})"
            rf"|训练(?:完成|结束)(?:后|之后|时)[^。\n]{{0,16}}{_FAILS}",
        ),
        (
            "eval",
            rf"\b(?:eval(?:uat\w{{1,4}})?|validation|compute_metrics|trainer\.predict)\b[^.。\n]{{0,60}}{_FAILS}"
            r"|\bcompute_metrics\b[^.。\n]{0,60}\b(?:ram|memory)\b"
            rf"|\b(?:eval(?:uat\w{{1,4}})?|validation)[_ ](?:loop|step|epoch)s?[^.。\n]{{0,40}}\b(?:leak|grow"
            rf"|accumulat|cache)"
            rf"|\b(?:leak|grow|accumulat|cache)\w{{0,5}}\b[^.。\n]{{0,48}}\b(?:eval(?:uat\w{{1,4}})?"
            rf"|validation)[_ ](?:loop|step|epoch)"
            rf"|{_FAILS}[^.。\n]{{0,30}}\b(?:during|in|at|when|while)\b[^.。\n]{{0,16}}\b(?:eval"
            rf"|validation)|(?:评估|验证|eval|evaluate|测试集)[^。\n]{{0,20}}(?:时|过程"
            rf"|阶段|的时候|再)?[^。\n]{{0,16}}(?:爆|oom|溢出|不断|显存|超出)|再做 ?eval",
        ),
        (
            "optimizer-init",
            r"(?:optimizer|优化器)[^。\n]{0,24}(?:init(?!ial_)|states? (?:are|is|init)|状态初始化|初始化)"
            r"|initiali[sz]ing[ _](?:the )?optimizer"
            rf"|(?:deepspeed\.initialize|initialize_optimizer)[^.。\n]{{0,40}}{_FAILS}"
            rf"|{_FAILS}[^.。\n]{{0,40}}(?:\bin |: )(?:deepspeed\.initialize|initialize_optimizer)",
        ),
        (
            "optimizer-step",
            rf"optimizer\.step|optimizer step|参数更新|更新(?:模型)?参数[^。\n]{{0,12}}{_FAILS}",
        ),
        (
            "backward",
            rf"\.backward\([^.。\n]{{0,40}}{_FAILS}|{_FAILS}[^.。\n]{{0,40}}\.backward\(|(?:during|in|at|on|of"
            rf"|through) (?:the )?(?:\w{{1,8}} of )?(?:(?:first|second|third|\d(?:st|nd|rd|th)|GRPO|PPO|DPO) ){{0,2}}"
            rf"back(?:ward|-?prop)|\d(?:st|nd|rd|th) (?:\w{{1,6}} )?back(?:ward|prop)"
            rf"|backward[^.。\n]{{0,32}}{_FAILS}|反向传播|反向[^。\n]{{0,6}}{_FAILS}",
        ),
        (
            "loss",
            rf"(?:{_FAILS}|allocat\w{{1,4}})(?:[^.。\n]|\.(?=\w)){{0,32}}cross.?entropy"
            rf"|logits\.float\(\)[^.。\n]{{0,24}}{_FAILS}"
            rf"|loss comput\w{{1,6}}|comput\w{{1,4}} (?:the )?loss|calculat\w{{1,4}} (?:the )?loss"
            rf"|计算 ?loss|last frame[^.\n]{{0,60}}cross_entropy|最后一帧[^\n]{{0,60}}cross_entropy"
            rf"|cross.entropy[^.。\n]{{0,30}}{_FAILS}",
        ),
        (
            "load",
            r"(?:when|while|during|before|on|at|in the middle of|half-?way through)[^.。\n]{0,30}\b(?:loading"
            r"(?! (?:the )?[\w.]{0,30}(?:processor|images?|template))|(?<!data was )(?<!data is )"
            r"(?<!dataset is )load(?:ed|s)?"
            r"|model (?:is being )?initiali[sz])\b|(?<!down)loading (?:the )?(?:model"
            r"|weights|checkpoint)[^.。\n]{0,40}|(?:oom|out of memory|crash\w{0,3}"
            r"|dies|fails)[^.。\n]{0,50}\b(?:while|when|before|during|half ?way through)[^.。\n]{0,"
            r"24}\b(?:load|initiali[sz])|no longer loads|does not load|加载(?:模型"
            r"|权重|数据)?[^。\n]{0,20}(?:爆|oom|溢出|不足|超|时)|resum(?:e|ing)[^.。\n]{0,30}checkpoint"
            r"|(?:从|加载)[^。\n]{0,12}(?:checkpoint|断点)[^。\n]{0,12}(?:恢复|继续|续训)|断点续训|恢复训练时"
            r"|(?:every|each) (?:rank|process|gpu|worker) loads"
            r"|加载到? ?\d{1,3} ?%|启动失败|couldn'?t load|cannot load|fail(?:s|ed|ing)? to load"
            r"|weights (?:be |are |were |get |is )?(?:all )?loaded (?:to|on|onto) (?:the )?(?:cuda|gpu|first|same)"
            r"|tokenizer oom|(?:process|prepar|tokeniz)(?:e|ing) (?:the )?data(?:set)?\b[^.。\n]{0,60}(?:oom"
            r"|out of mem|killed)"
            r"|(?:oom|out of mem\w{0,3}|killed)[^.。\n]{0,24}(?:process|prepar|tokeniz)(?:e"
            r"|ing) (?:the )?data(?:set)?\b",
        ),
        (
            "generate",
            r"(?:when|while|during|at|on)[^.。\n]{0,24}\b(?:generat\w{1,5}"
            r"|inference|rollout|sampling|decoding|serving)\b|rollout step"
            r"|(?:oom|out of memory|crash)[^.。\n]{0,40}(?:generat\w{1,5}"
            r"|rollout)(?! (?:is|are|was|works?) )|(?:生成|推理|调用|rollout)(?! ?(?:没问题|没有问题|正常"
            r"|都行))[^。\n]{0,20}(?:爆|oom|溢出|时|次数|报 ?cuda|out of mem)"
            r"|\bprefill\b[^.。\n]{0,40}(?:oom|out of mem)|(?:oom|out of mem)[^.。\n]{0,40}\bprefill\b"
            r"|\bgenerate(?:\(\))? with [^.。\n]{0,40}(?:oom|out of mem)|inference (?:oom|out of mem|runs out)"
            r"|\.generate\(\)[^.。\n]{0,40}(?:oom|out of mem)"
            r"|\bmodel\.generate\b[^.。\n]{0,40}(?:oom|out of mem)"
            r"|rollout worker|at inference|many requests|after (?:some|several"
            r"|a few|many) (?:requests|calls)|unwrap_model_for_generation"
            r"|generat\w{1,5}_sequences|middle of serving",
        ),
        (
            "forward",
            rf"(?:in|during|at|doing) (?:the )?(?:\w{{1,8}} )?forward(?: pass)?"
            rf"|forward pass[^.。\n]{{0,30}}{_FAILS}|前向",
        ),
        (
            "engine-init",
            r"engine (?:is )?(?:built|build|init)|during (?:model )?initiali[sz]ation"
            r"|server (?:does not|fails to|won't) start|fails? (?:at|on|during) start(?:up)?"
            r"|warm-?up fails|(?<!训练)(?<!训练刚)(?:初始化就|启动就)|while (?:the )?engine"
            r"|build(?:ing)? (?:the |an )?engine\b|fail\w{0,3} to build [^.\n]{0,24}engine"
            r"|(?:profil|captur)ing (?:cuda ?)?graphs?",
        ),
    )
)

# What tells it less surely: looked at only where neither these words nor a log tell.
_HINTS: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (phase, Expression(text, _I))
    for phase, text in (
        (
            "load",
            r"(?:还)?没有?(?:到|开始|进入)(?:正式)?训练|训练(?:开始)?之?前[^。\n]{0,16}(?:转|加载|爆|oom|显存)"
            r"|before (?:the )?(?:actual )?training (?:even |actually )?(?:starts?|begins?|started)"
            r"|(?:n't|not|never) (?:even )?(?:start|begin|reach|get to) (?:the )?training",
        ),
        (
            "save",
            rf"(?:each|every) time{_X}{{0,40}}\bsav(?:es?|ing)\b|save_(?:pretrained|model|checkpoint|state)\b"
            rf"{_X}{{0,80}}{_FAILS}|{_FAILS}{_X}{{0,40}}\b(?:when|while|during|at|on){_X}{{0,16}}\bsav(?:es?|ing)\b"
            rf"|合并[^。\n]{{0,24}}{_FAILS}|\bmerg(?:e|es|ing)\b{_X}{{0,40}}{_FAILS}|存(?:权重|ckpt)[^。\n]{{0,12}}{_FAILS}"
            rf"|\bexport(?:s|ing)?\b{_X}{{0,40}}\b(?:lora|adapter|merged)",
        ),
        (
            "backward",
            r"\bupdate_(?:actor|policy|critic)\b|\b(?:actor|critic|policy) update\b|\bforward[_ ]?(?:and "
            r"|/ ?)?backward\b",
        ),
        (
            "eval",
            rf"{_FAILS}{_X}{{0,30}}\b(?:during|in|at|when|while|on|before|after|once){_X}{{0,16}}\b(?:eval|validat"
            rf"|test(?:ing)? (?:phase|stage|step|set|split))|\b(?:when|while|once|during|after|before){_X}{{0,16}}"
            rf"\b(?:validat\w{{1,5}}|evaluat\w{{1,4}}|predicting|test(?:ing)? (?:phase|stage|step|set|split))\b"
            rf"|\btest(?:ing)? (?:phase|stage|step|split)\b{_X}{{0,60}}{_FAILS}"
            r"|\b(?:in|to|into) ?[\"'`]?val(?:idation)?[\"'`]? mode|(?:开始|进行|做|跑|运行|到)(?:验证|评估|评测|测试)"
            r"|(?:评测|评估|验证|测试)(?:时|阶段|过程|脚本|集)"
            r"|(?<!/)\btest_\w{1,24}\.py\b|\beval\w{0,12}\.py\b",
        ),
        (
            "generate",
            rf"(?:并发|concurren\w{{1,4}}|多个? ?client|(?:推理|对话|聊天|提问|会话|多轮))"
            rf"[^。\n]{{0,40}}{_FAILS}"
            rf"|{_FAILS}{_X}{{0,40}}\b(?:concurren\w{{1,4}}|parallel requests)"
            rf"|after (?:a few|several|some|many|\d{{1,3}}|\w{{1,6}}) (?:messages|turns|questions|prompts|images|rounds"
            rf"|chats)\b"
            rf"|第 ?[二三四五六2-9] ?(?:轮|个问题|次(?:提问|对话|推理|问))"
            rf"|问(?:了)?[一二两三几第][^。\n]{{0,16}}{_FAILS}"
            rf"|\b(?:infer\w{{0,5}}|generat\w{{1,4}}|transcrib\w{{1,3}}|decod\w{{1,3}}|chatting)\b{_X}{{0,24}}{_FAILS}"
            rf"|{_FAILS}{_X}{{0,30}}\b(?:infer\w{{0,5}}|generat\w{{1,4}}|transcrib\w{{1,3}})\b",
        ),
        (
            "load",
            rf"from_pretrained\([^\n]{{0,200}}{_FAILS}|{_FAILS}[^\n]{{0,80}}from_pretrained\("
            rf"|\bloads?\b{_X}{{0,40}}\b(?:in)?to (?:one|a single|gpu ?0|the first|each|every|all)\b"
            rf"|model\.(?:float|half|cuda|to)\({_X}{{0,60}}{_FAILS}"
            rf"|\b(?:mov|put|plac)(?:e|es|ing|ting)\b (?:the |my )?model\b{_X}{{0,60}}{_FAILS}"
            rf"|\b(?:quantiz\w{{1,5}}|convert\w{{0,3}})\b{_X}{{0,60}}{_FAILS}"
            rf"|{_FAILS}{_X}{{0,30}}\b(?:quantizing|converting)\b"
            rf"|(?:量化|转换)[^。\n]{{0,24}}{_FAILS}|\bconvert\b{_X}{{0,40}}\bmodel\b"
            rf"|\bquantiz(?:e|ing) (?:an? |the |my )?[\w.-]{{0,24}} ?(?:model|weights|\d{{1,3}}b)\b"
            rf"|{_FAILS}[^\n]{{0,40}}load|\bprepar(?:e|ing)\b{_X}{{0,24}}\bmodel\b|accelerator\.prepare\("
            rf"|\b(?:ddp|fsdp|DistributedDataParallel|DataParallel)\b{_X}{{0,16}}\bwrap\w{{0,4}}{_X}{{0,40}}{_FAILS}"
            rf"|before the progress bar|{_FAILS}{_X}{{0,24}}before the first (?:step|iteration|batch|epoch)"
            rf"|\b(?:want|try|trying|tried|attempt\w{{0,3}}|how) to load\b",
        ),
        (
            "eval",
            r"\b(?:lm|lmms|vlm)[-_]?eval|simple_evaluate|opencompass|evalscope|evalkit|\bauto-?detect\w{0,3} batch",
        ),
        ("optimizer-step", r"\bexp_avg\w{0,3}\.(?:sqrt|mul_|lerp_|addcmul_)|\.addcdiv_\("),
        ("loss", r"\b(?:in|inside|at) the loss\b|masked_ce\b|(?<![-_])\b(?:log_?softmax|cross[ _]?entropy)\b"),
        (
            "forward",
            r"\bcalibrat\w{1,4}\b|= ?[\w.]{1,30}\.(?:einsum|matmul|bmm|baddbmm|softmax)\(|hlo_rematerialization"
            r"|BufferAssignment",
        ),
        (
            "engine-init",
            r"shared memory segment[^\n]{0,40}nccl|nccl[^\n]{0,60}/dev/shm|ncclCommInit|ncclGetUniqueId"
            r"|init_process_group",
        ),
    )
)


def phase_of_prose(text: str) -> str | None:
    """The phase that people name as the one that fails."""
    return _first(_PROSE, text[:10_000])


def phase_hinted(text: str) -> str | None:
    """The phase that words make likely which do not name it as the one that fails."""
    return _first(_HINTS, text[:10_000])


def _first(table: tuple[tuple[str, Expression], ...], text: str) -> str | None:
    low = text.lower()
    return next((phase for phase, pattern in table if pattern.may_match(low) and pattern.search(text)), None)
