"""An inactive setting: what should save memory was given and is not in effect.

Sign
    A key sits at the wrong level of the file, is misspelt, belongs to another engine or launcher, or is overridden;
    a message says "ignored", "not supported for this model type" or reports another value than the one set. Several
    GPUs are visible and one process runs.
Mechanism
    Frameworks accept keys they do not read. ZeRO over one rank shards nothing. A shell line without a trailing
    backslash ends the command, and without ``export`` the variables before it do not reach the program. Plain
    ``python`` on several GPUs starts one process. Fused losses exist per model type and objective. An optimizer may
    be rebuilt by the wrapper without its options.
Confirm
    Print the effective values: the world size, the optimizer's class, whether parameters are sharded, the attention
    implementation, the engine's own start-up line. Change the setting to an absurd value and see that nothing
    happens.
Fix
    Put the key where the framework reads it; use the launcher that the sharding needs; check the log for the line
    that confirms it; replace what the model or version does not support.
Cost
    That of the setting itself.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._fits import OVER_RANKS
from oomdoc.diagnosis.rules._placed import still_placed
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.evidence import Span
from oomdoc.intake.sieve import alternatives
from oomdoc.messages import Message, say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "inactive-setting"

_OPTION: Final = (
    r"(?:offload\w{0,6}|zero.?[0-3]?\b|deepspeed|checkpointing|quanti[sz]\w{1,7}|[48].?bit|load_in_\w{1,8}|int[48]\b"
    r"|fp8"
    r"|flash.?att\w{0,10}|\bfsdp|gpu.?memory|device.?map|cuda:\d|max_pixels|max_memory|watermark_ratio|torch.?dtype"
    r"|sharding"
    r"|placement_strategy|tensor.?parallel\w{0,12}|--[a-z]\w{1,12}[-_]\w{2,30}|量化|卸载|切分)"
)
"""What is set in order to save memory."""
_SAVER: Final = r"(?:quanti[sz]\w{1,7}|[48].?bit|\bint[48]\b|fp8|offload\w{0,6}|checkpointing|zero.?[23]|量化)"
_CLUES: Final = (
    Clue(
        "said",
        STRONG,
        prose=True,
        says=r"(?<!required and will be )\bignor(?:ed?|es|ing)\b(?! (?:the |this |that )?(?:warning|above|previous))"
        r"|no effect|(?:\bnot"
        r"|n'?t) (?:being |getting )?(?:applied|honou?red|in effect"
        r"|passed|respected)"
        r"|(?:doesn'?t|does not|did not) (?:seem to )?(?:take effect|apply|do anything|use (?:the two|both"
        r"|all|my))|silently|(?:is|are|being|was|gets?|got) (?:silently )?over(?:rid|writ)\w{1,4}|overrid(?:es|ing"
        r"|den) (?:my|the|our)"
        r"|不生效|未生效|没(?:有)?生效|没起作用|无效|without effect"
        r"|not (?:being |able to )?shard|instead of (?:being )?shard|gets? replicated|没有?(?:被)?(?:切分|分片)"
        r"|没有?(?:任何)?(?:效果|作用|区别)|显存(?:的?占用|使用)?[^\n，。]{0,10}(?:都|也|并)?没有?(?:减少|下降|变化"
        r"|降低|变)"
        r"|(?:和|跟|与)不(?:开|用|加).{0,8}(?:一样|相同|一致)|same (?:memory|vram)(?: usage| consumption)? (?:as"
        r"|with|whether)"
        r"|(?:doesn'?t|does not|did not|didn'?t) (?:seem to )?(?:reduce|save|lower|decrease) (?:(?:the|my|any|gpu|peak"
        r"|much) ){0,3}(?:memory|vram|usage|footprint|consumption|peak)"
        r"|不起作用|没用上|(?:makes?|made) no difference|(?:is|are|was) not (?:actually |really |even "
        r"|being ){1,2}(?:used|utili[sz]ed|enabled)"
        r"|(?:is|are|was) not (?:being )?(?:activated"
        r"|picked up|recogni[sz]ed|taken into account)|(?:usage|memory|vram)[^\n]{0,24}(?:stays|remains"
        r"|is still) (?:the same|unchanged)"
        r"|still (?:loads?|uses?|takes?|consum\w{1,3}|allocat\w{1,3}) (?:the )?(?:full|whole|entire|same)"
        r"|没(?:有)?(?:启用|开启成功|识别)|并没有(?:减少|降低|切)|占用没(?:变|降|减)"
        r"|(?:configured|enabled|asked for|requested)[^\n]{0,30}\bbut\b[^\n]{0,40}(?:stays?|still|empty|same|eager)"
        r"|[开用加设配]了[^\n]{0,24}(?:没降|没变|不变|没减|没少|不降|没涨|和没开)|被忽略|没有?传[进入到]"
        r"|changes nothing|same[^\n]{0,40}with and without|with \d gpus the same|as much memory as"
        r"|although [^\n]{0,24}(?:was|is) (?:asked|set|enabled|requested)|despite (?:the |this )?(?:flag|setting"
        r"|option|config)|instead of (?:torchrun|accelerate|deepspeed)|没有?用 ?torchrun|用 ?python ?直接"
        r"|world.?size (?:is|为|是) ?1\b|is dropped|一点没降"
        r"|(?:占用|显存)[^\n]{0,6}[和跟与][^\n]{0,12}(?:一样|相同)"
        r"|forgot to (?:pass|set|add|enable|use|export|launch)|although (?:i|we) (?:asked|set|passed|enabled|requested"
        r"|specified)|(?:same|identical) (?:as|to) without|明明(?:设置?|开启?|加|用|指定|选)了?|没有?(?:起到?作用|用上)"
        r"|(?:is|was|are) not being read|hard-?coded|写死|(?:not|n'?t) (?:seem to )?chang\w{1,3} (?:the )?(?:memory"
        r"|vram|gpu|usage|peak)"
        r"|(?:checkpointing|offload\w{0,4}|zero\w{0,2}|quanti[sz]ation|flash\w{0,10}|packing|sharding|fsdp|liger)"
        r" (?:is|are|does|seems?) (?:not|n'?t) (?:to )?(?:be )?work",
        # What grows, what is never given back and what was restored at the start is not about a setting.
        unless=r"(?:内存|显存)[^\n，。]{0,10}(?:一直|不断|越来越)[^\n，。]{0,4}(?:涨|大|增|高)"
        r"|batch.?size[^\n，。]{0,6}(?:设置)?无效"
        r"|越来越[大多]|could (?:it|this|that) (?:mean|be) that",
    ),
    Clue(
        "even-so",
        FAIR,
        prose=True,
        says=r"(?:even (?:after|with|though|when)|despite|although)[^\n]{0,24}(?:deepspeed|zero|checkpointing|fsdp"
        r"|flash"
        r"|lora"
        r"|quanti[sz]\w{1,6}|offload\w{0,3})[^\n]{0,16}(?:turned on|enabled|is on|was on|in use)",
    ),
    Clue(
        "other-device",
        FAIR,
        prose=True,
        says=r"(?:n_gpu_layers|gpu_layers|\b-ngl|cuda_visible_devices|(?:to|on|onto|use|using|only) (?:the )?[\"'`]?cpu"
        r"|not (?:to )?(?:use|using|touch) (?:the |any |my )?gpus?)\b[^\n.]{0,40}(?:\bstill\b|\banyway\b|however)"
        r"[^\n.]{0,30}(?:\bus(?:es?|ed|ing)|tries to use|loads?|allocat\w{1,3})[^\n.]{0,20}(?:gpus?\b|cuda|vram"
        r"|actively)"
        r"|not (?:to )?use (?:the |any |my )?gpus?\b[^\n.]{0,24}(?:it is|it's|is) still (?:being )?used"
        r"|(?:设置|指定|选|用)了?[^\n，。]{0,12}cpu[^\n。]{0,16}(?:还是|仍|却|依然)[^\n。]{0,10}(?:显存|gpu|cuda)",
    ),
    Clue(
        "option-named",
        STRONG,
        prose=True,
        says=rf"{_OPTION}[^\n.。]{{0,60}}(?:\bno (?:effect|influence|impact)\b"
        r"|never (?:activated|enabled|used|applied)"
        r"|(?:is|stays|remains) (?:identical|unchanged|the same)|没有?(?:任何)?(?:下降|减少|变化|降低)|without effect"
        r"|\bignored\b|not (?:being |getting )?(?:applied"
        r"|honou?red|passed|respected|in effect|work(?:ing)?\b)|never (?:seems to )?(?:appl|reach|tak)"
        r"|(?:doesn'?t|does not|did not) (?:seem to )?(?:take effect|apply|do anything|work\b)|appears to do nothing"
        r"|不生效|未生效|没有?生效|不起作用|没有?(?:作用|效果)|前后[^\n]{0,12}没有?变化)"
        rf"|{_OPTION}[\w-]{{0,12}} (?:is |has |was )?(?:of )?no use\b"
        rf"|\bignor(?:es?|ing)\b (?:the |my )?(?:\S{{1,20}} )?{_OPTION}",
        unless=r"utili[sz]ation[^\n]{0,20}(?:makes|made) no|could (?:it|this|that) (?:mean|be) that",
    ),
    Clue(
        "takes-more",
        STRONG,
        prose=True,
        says=rf"{_SAVER}[^\n.。]{{0,60}}(?:more|higher|larger|twice)[^\n.。]{{0,30}} (?:than|as) [^\n.。]{{0,24}}"
        r"(?:bf16|fp16|fp32|full|16.?bit|half|without|no |normal|should|ideal|unquanti[sz])"
        rf"|{_SAVER}[^\n，。]{{0,30}}(?:反而|比不|比没|比 ?(?:bf|fp)16|比全量)[^\n，。]{{0,20}}(?:多|高|大)",
        unless=r"\bfsdp2|more memory than expected",
    ),
    Clue(
        "wrong-card",
        STRONG,
        prose=True,
        says=r"(?:not|n'?t) assigned|always (?:uses?|runs?|executes?|loads?|goes|allocates?|picks?) (?:on |to |onto "
        r"|into )?"
        r"(?:the )?(?:gpu|cuda|device|card)[ :_]?0\b|(?:all|every)[^\n,.]{0,30} (?:is|are|be|get) [^\n,.]{0,20}"
        r"(?:on|to|onto) (?:the )?(?:gpu|cuda|device|card)[ :_]?0\b"
        r"|cuda:[1-9][^\n.]{0,24}(?:but|yet)[^\n]{0,40}(?:gpu|cuda)[ :_]?0\b|指定[^\n]{0,20}(?:还是|却"
        r"|但)[^\n]{0,14}(?:0 ?号|第一|gpu ?0)",
    ),
    Clue(
        "reported-other",
        DECISIVE,
        says=r"with actual|no liger kernels? supported|un-?chunked|none of the inputs have requires_grad"
        r"|is a 32-bit|actual (?:behaviou?r|gpu util)"
        r"|but after .{0,40} (?:it|the \w+) is|not supported for (?:this )?model",
    ),
    Clue(
        "one-gpu",
        STRONG,
        says=r"(?:everything|whole model|entire model|all (?:the |of the )?(?:models?|layers|weights|of it|workers"
        r"|ranks"
        r"|engines|replicas|instances|processes))(?: \w{2,9}){0,4} (?:on|to|onto|in"
        r"|into) (?:the )?(?:first|a single|one|(?:gpu|cuda)[ :]?0)\b|(?:just|only) (?:one|a single|1) (?:card"
        r"|gpu) (?:fills|is used|is full|works|gets)"
        r"|只用到?了?第 ?\d|(?:还是|却|仍然?)(?:跑|加载|分配|用)(?:到|在)了? ?(?:0 ?号|第一[张块]|gpu ?0|cuda:0)"
        r"|only (?:uses? )?(?!one process on)(?:(?:one|1|a single|the first) (?:\w{1,8} )?(?:gpu|card|device"
        r"|process|rank)|gpu ?0"
        r"|cuda:0)"
        r"|(?:in|on)to (?:only )?(?:one|a single|the first) (?:gpu|card|device)\b|(?:does|do) not use the (?:two|four"
        r"|other|second)|只(?:用|占|跑)了?.{0,4}(?:一|1|单) ?张|只有.{0,6}0 ?号?卡|other gpus? (?:are|is"
        r"|stay)s? (?:idle|empty|free)|(?:second|other|remaining) gpus?\b.{0,24}(?:hardly|not|barely|never) (?:used"
        r"|utili)"
        r"|(?:not|n't) (?:us(?:e|ing)|utili[sz]\w{1,3}|distribut\w{1,3}|split\w{0,4}"
        r"|spread\w{0,3}) [^\n]{0,24}(?:gpus|cards|devices)"
        r"|gpu:? ?0[^\n]{0,40}(?:full|oom|out of)[^\n]{0,40}(?:others?|rest)[^\n]{0,24}(?:empty|idle|free|unused)"
        r"|(?:two|2|some|three|3) (?:of the |of my )?(?:gpus|cards) (?:are|were|stay)[^\n]{0,6}(?:not used|unused|idle"
        r"|empty)"
        r"|只有(?:一|1|第一|单) ?(?:个|张|块)?(?:显?卡|gpu)[^\n，。]{0,10}(?:推理|训练|工作|使用|在用|在跑|显存)"
        r"|有(?:几|一|两|\d) ?(?:张|块|个)(?:显?卡|gpu)没有?(?:用|使用)|(?:第一|0号)[张块]?卡[^\n]{0,20}(?:满|爆|oom)"
        r"[^\n]{0,30}(?:其他|其它|别的|另)[^\n]{0,16}(?:不高|空|没|很低|很少)"
        r"|另一张.{0,4}(?:空|没|不变)|其他(?:几张)?(?:卡|gpu).{0,6}(?:没|空)",
    ),
    Clue(
        "uneven",
        FAIR,
        prose=True,
        says=r"(?:gpu ?[:#]?0\b|first (?:gpu|card)|cuda:0|rank ?0|0 ?号卡|第一张卡)[^\n.。]{0,30}(?:\bgets?|\bhas"
        r"|\bus(?:es|ing)"
        r"|\btak(?:es|ing)|consum\w{1,3}|allocat\w{1,3}|occup\w{2,4}|占用?)[^\n.。]{0,24}(?:more|higher|larger"
        r"|更多|更高)[^\n.。]{0,40}(?:others?\b|rest\b|remaining|\bgpu ?[1-9])"
        r"|more (?:gpu |video )?(?:memory|vram) (?:\w{1,9} )?(?:on|in) (?:the )?(?:first (?:gpu|card|device)|gpu ?0"
        r"|cuda:0)"
        r"|(?:0 ?号卡|第一张卡|卡 ?0|gpu ?0)[^\n，。]{0,16}(?:比|高于|多于)其[他它]",
    ),
    Clue(
        "elsewhere-fine",
        FAIR,
        prose=True,
        says=r"(?:llama.?factory|axolotl|unsloth|ms-?swift|trl|torchtune|xtuner)\b[^\n,，。]{0,40}"
        r"(?:was fine|is fine|works|no problem|没事|没问题|正常)",
    ),
    Clue(
        "still-same",
        FAIR,
        prose=True,
        says=r"(?:is |was |have |has |am )?already (?:set|enabled|using|turned|pass)[^\n]{0,60}"
        rf"{_OPTION}|{_OPTION}[^\n]{{0,30}}(?:is|was|are) (?:already )?(?:set|enabled|turned on)[^\n]{{0,50}}\bstill\b"
        rf"|(?:\bi|even if i|have|we) (?:set|enabled?|pass(?:ed)?|turn(?:ed)? on) [^\n]{{0,30}}{_OPTION}[^\n]{{0,40}}"
        r"(?:\bstill\b|but (?:it |this |the )?(?:still|did|does|after))|(?:chang|modif|switch"
        rf"|specif)\w{{1,4}}[^\n]{{0,80}}\bbut\b[^\n]{{0,12}}\bstill\b|(?:加|开|设|用)了?[^\n，。]{{0,16}}{_OPTION}"
        r"[^\n]{0,20}(?:还是|仍|依然)|exactly the same oom|whatever (?:i|parameter|the)|全开了"
        r"|加了[^\n，。]{0,12}(?:代码|参数|配置)[^\n]{0,24}(?:还是|仍)"
        r"|(?:调小|减小|降低)(?:之后|后)?(?:还是|仍|也)",
    ),
)

_LAUNCHED: Final = (
    r"torchrun|accelerate|deepspeed|mpirun|\bsrun|\bcomposer [a-z]\S{0,60}\.py|torch\.distributed|--nproc|\bswift "
    r"|llamafactory-cli|\bray "
    r"|\blaunch|mp\.spawn"
)
_SCRIPT: Final = (
    r"(?:^|[\n$#>`:] ?|\b(?:as|with|via|by|run|running) |[用行] ?)"
    r"python3? [^\n]{0,80}(?:train|tune|sft|dpo|pretrain)\w{0,24}\.py"
)
"""A trainer's script that is started as one process."""
_USED: Final = re.compile(r"\b(\d{1,6})mib[ \t]{0,4}/[ \t]{0,4}(\d{3,6})mib")
_MOSTLY: Final = 0.6
_FULL: Final = 0.85
_EMPTY: Final = 0.05
_MOST_CARDS: Final = 16
_PLAIN: Final = r"_ddp_init_helper|dist\.reducer|parallel\.distributeddataparallel\("
"""Frames of plain data parallelism, where every rank holds everything."""


def _served_by_command(view: View) -> bool:
    """Whether an engine's own command or call is there and spreads the model over no cards: they use one then."""
    engines = {"vllm", "lmdeploy", "sglang"}
    named = any(document.framework in engines for document in view.evidence.documents)
    return named and view.stated("tp") is None and view.stated("pp") is None


def _states_overfill(view: View) -> bool:
    """Whether what one process holds for good takes most of its card: sharding that does nothing matters then."""
    states, capacity = view.state_bytes, view.bytes_of("capacity")
    return bool(states and capacity and states > capacity * _MOSTLY)


def _plain_start(view: View) -> str:
    """The command that starts a trainer's script as one process, where nothing names a launcher."""
    texts = [view.text, *(d.text.lower() for d in view.evidence.documents if d.form == "shell")]
    if any(alternatives(_LAUNCHED).search(text) for text in texts):
        return ""
    found = next(filter(None, (alternatives(_SCRIPT).search(text) for text in texts)), None)
    return found[0].strip() if found else ""


_HINTS: Final[Mapping[str, float]] = {
    "inactive.adapters-in-full": WEAK,  # no one meant to train adapters who asked for full training
    "inactive.unknown-key": FAIR,
    "inactive.data-parallel": FAIR,
}
"""What says less than that a setting which saves memory is not in effect."""


def _matters(view: View, reason: str) -> float:
    if reason == "inactive.one-process":
        # Sharding that has nothing to divide by matters where states are what overfills the card.
        return WEAK if view.state_bytes and not _states_overfill(view) else STRONG
    return _HINTS.get(reason, STRONG)


def _one_card_of(view: View) -> Span | None:
    """The row of the full card where ``nvidia-smi`` shows it full beside one that is nearly empty."""
    rows = [(int(m[1]) / max(int(m[2]), 1), m) for m in islice(_USED.finditer(view.text), _MOST_CARDS)]
    if len(rows) < 2 or max(rows, key=_part)[0] < _FULL or min(rows, key=_part)[0] > _EMPTY:
        return None
    return Span("", 0, 1, max(rows, key=_part)[1][0])


def _part(row: tuple[float, re.Match[str]]) -> float:
    return row[0]


def weigh(view: View) -> Iterator[Reason]:
    """Settings that intake found without effect, and what the person or the log says."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    for item in view.evidence.inactive[:3]:
        yield Reason(
            _matters(view, item.reason),
            say(
                "cause.inactive-setting.found",
                setting=item.setting,
                reason=Message(item.reason, {"setting": item.setting, "line": item.span.line, **item.values}),
            ),
            (item.span,),
        )
    if (row := _one_card_of(view)) is not None:
        yield Reason(FAIR, say("cause.inactive-setting.card-of-many", quote=row.text))
    job, ranks = view.job, view.ranks
    visible = view.evidence.value("gpu_count")
    if view.serving and isinstance(visible, int) and visible > 1 and _served_by_command(view):
        yield Reason(FAIR, say("cause.inactive-setting.one-card", visible=visible))
    whole, capacity = still_placed(view), view.bytes_of("capacity") or 0
    if whole and not view.training and isinstance(visible, int) and visible > 1 and whole < visible * capacity:
        yield Reason(FAIR, say("cause.inactive-setting.all-on-one", visible=visible, weights_bytes=whole))
    plain = view.traces(_PLAIN)
    if plain is not None and view.training and (view.fullness or 0.0) > 1 and (ranks or 1) > 1:
        yield Reason(STRONG, say("cause.inactive-setting.replicated", quote=plain.text.strip()[:90]), (plain,))
    if not isinstance(visible, int) or visible < 2 or not view.training or not _states_overfill(view):
        return
    if ranks == 1:
        yield Reason(STRONG, say("cause.inactive-setting.one-process", visible=visible))
        if job.sharding in OVER_RANKS:
            yield Reason(FAIR, say("cause.inactive-setting.shards-nothing", sharding=job.sharding))
    elif view.stated("sharding") is None and (start := _plain_start(view)):
        yield Reason(STRONG, say("cause.inactive-setting.plain-start", visible=visible, quote=start[:90]))
