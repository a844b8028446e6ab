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

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, Clue, View, weigh_clues
from oomdoc.messages import Message, say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "inactive-setting"

_CLUES: Final = (
    Clue(
        "said",
        STRONG,
        prose=True,
        says=r"\bignor(?:ed?|es|ing)\b(?! (?:the |this |that )?(?:warning|above|previous))|no effect|(?:\bnot"
        r"|n'?t) (?:being |getting )?(?:applied|honou?red|in effect"
        r"|passed|respected)"
        r"|(?:doesn'?t|does not|did not) (?:seem to )?(?:take effect|apply|do anything|use (?:the two|both"
        r"|all|my))|silently|overrid|overwrit|不生效|未生效|没(?:有)?生效|没起作用|无效|without effect"
        r"|not (?:being |able to )?shard|instead of (?:being )?shard|gets? replicated|没有?(?:被)?(?:切分|分片)"
        r"|没有?(?:任何)?(?:效果|作用|变化|区别)|显存.{0,10}(?:没有?|不|未)(?:.{0,4})(?:减少|下降|变化|降低|变)"
        r"|(?:和|跟|与)不(?:开|用|加).{0,8}(?:一样|相同|一致)|same (?:memory|vram)(?: usage| consumption)? (?:as"
        r"|with|whether)"
        r"|(?:doesn'?t|does not|did not|didn'?t) (?:seem to )?(?:reduce|save|lower|decrease)"
        r"|不起作用|没用上|(?:makes?|made) no difference|(?:is|are|was) not (?:being )?(?:used|utili[sz]ed|enabled"
        r"|activated"
        r"|picked up|recogni[sz]ed|taken into account)|(?:usage|memory|vram)[^\n]{0,24}(?:stays|remains"
        r"|is still) the same"
        r"|still (?:loads?|uses?|takes?|consum\w{1,3}|allocat\w{1,3}) (?:the )?(?:full|whole|entire|same)"
        r"|没(?:有)?(?:启用|开启成功|识别)|并没有(?:使用|减少|降低|切)|占用(?:没|不)(?:变|降|减)"
        r"|(?:configured|enabled|asked for|requested)[^\n]{0,30}\bbut\b[^\n]{0,40}(?:stays?|still|empty|same|eager)"
        r"|[开用加设配]了[^\n]{0,24}(?:没降|没变|不变|没减|没少|不降|没涨|和没开)|被忽略|没有?传[进入到]"
        r"|changes nothing|same[^\n]{0,40}with and without|with \d gpus the same|as much memory as"
        r"|although [^\n]{0,24}(?:was|is) (?:asked|set|enabled|requested)|despite (?:the |this )?(?:flag|setting"
        r"|option|config)|instead of (?:torchrun|accelerate|deepspeed)|没有?用 ?torchrun|用 ?python ?直接"
        r"|world.?size (?:is|为|是) ?1\b|is dropped|一点没降"
        r"|(?:占用|显存)[^\n]{0,6}[和跟与][^\n]{0,12}(?:一样|相同)"
        r"|(?:even (?:after|with|though|when)|despite|although)[^\n]{0,24}(?:deepspeed|zero|checkpointing|fsdp|flash"
        r"|lora"
        r"|quanti[sz]\w{1,6}|offload\w{0,3})[^\n]{0,16}(?:turned on|enabled|is on|was on|in use)"
        r"|(?:4.?bit|8.?bit|int[48]|quanti[sz]ed)[^\n]{0,60}(?:more|higher|larger)[^\n]{0,30}(?:bf16|fp16|full"
        r"|16.?bit|half)"
        r"|hard-?coded|写死|(?:not|n'?t) (?:seem to )?chang\w{1,3} (?:the )?(?:memory|vram|gpu|usage|peak)"
        r"|(?:checkpointing|offload\w{0,4}|zero\w{0,2}|quanti[sz]ation|flash\w{0,10}|packing|sharding|fsdp|liger)"
        r" (?:is|are|does|seems?) (?:not|n'?t) (?:to )?(?:be )?work",
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
        says=r"only (?:uses? )?(?:(?:one|1|a single|the first) (?:\w{1,8} )?(?:gpu|card|device|process|rank)|gpu ?0"
        r"|cuda:0)"
        r"|(?:in|on)to (?:only )?(?:one|a single|the first) (?:gpu|card|device)\b|(?:does|do) not use the (?:two|four"
        r"|other|second)|只(?:用|占|跑)了?.{0,4}(?:一|1|单) ?张|只有.{0,6}0 ?号?卡|other gpus? (?:are|is"
        r"|stay)s? (?:idle|empty|free)|(?:second|other|remaining) gpus?\b.{0,24}(?:hardly|not|barely|never) (?:used"
        r"|utili)"
        r"|(?:not|n't) (?:us(?:e|ing)|utili[sz]\w{1,3}|distribut\w{1,3}|split\w{0,4}"
        r"|spread\w{0,3}) [^\n]{0,24}(?:gpus|cards|devices)"
        r"|gpu:? ?0[^\n]{0,40}(?:full|oom|out of)[^\n]{0,40}(?:others?|rest)[^\n]{0,24}(?:empty|idle|free|unused)"
        r"|另一张.{0,4}(?:空|没)|其他(?:几张)?(?:卡|gpu).{0,6}(?:没|空)",
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
        says=r"(?:is |was |have |has |am )?already (?:set|enabled|on|using|turned)|(?:set|enabled?|passe?d?"
        r"|variable is set|turned on).{0,50}(?:still|and (?:i )?still|but)|(?:chang|modif|switch"
        r"|specif)\w{1,4}[^\n]{0,80}\bbut\b[^\n]{0,12}\bstill\b|加上.{0,14}还是|(?:开|设|加"
        r"|用)了.{0,30}(?:还是|仍|依然|也)|exactly the same oom|whatever (?:i|parameter|the)|全开了|all the same\b"
        r"|(?:调小|减小"
        r"|降低)(?:之后|后)?(?:还是|仍|也)",
    ),
)

_PLAIN: Final = r"_ddp_init_helper|dist\.reducer|parallel\.distributeddataparallel\("
"""Frames of plain data parallelism, where every rank holds everything."""


def _served_by_command(view: View) -> bool:
    """Whether an engine's own command or call is there and spreads the model over no cards: they use one then."""
    engines = {"vllm", "lmdeploy", "sglang"}
    named = any(document.framework in engines for document in view.evidence.documents)
    return named and view.stated("tp") is None and view.stated("pp") is None


def weigh(view: View) -> Iterator[Reason]:
    """Settings that intake found without effect, and what the person or the log says."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    for item in view.evidence.inactive[:3]:
        yield Reason(
            STRONG,
            say(
                "cause.inactive-setting.found",
                setting=item.setting,
                reason=Message(item.reason, {"setting": item.setting, "line": item.span.line, **item.values}),
            ),
            (item.span,),
        )
    job, ranks = view.job, view.ranks
    visible = view.evidence.value("gpu_count")
    if view.serving and isinstance(visible, int) and visible > 1 and _served_by_command(view):
        yield Reason(FAIR, say("cause.inactive-setting.one-card", visible=visible))
    plain = view.traces(_PLAIN)
    if plain is not None and view.training and (view.fullness or 0.0) > 1 and (ranks or 1) > 1:
        yield Reason(STRONG, say("cause.inactive-setting.replicated", quote=plain.text.strip()[:90]), (plain,))
    if ranks == 1 and isinstance(visible, int) and visible > 1 and view.training:
        yield Reason(STRONG, say("cause.inactive-setting.one-process", visible=visible))
    if (
        ranks == 1
        and job.sharding in ("zero1", "zero2", "zero3", "fsdp", "fsdp2")
        and isinstance(visible, int)
        and visible > 1
    ):
        yield Reason(FAIR, say("cause.inactive-setting.shards-nothing", sharding=job.sharding))
