"""A long sample: one batch is far larger than the rest.

Sign
    Dozens or thousands of steps pass and one fails, at the same place of the data each time for one seed; usage
    before was well below the card. One rank fails first. The request is large against what is allocated.
Mechanism
    Activations and logits grow with the tokens of the longest sample of the batch, attention scores with the
    square. Where nothing truncates (no maximum length, a key that this pipeline does not read, packing, images
    counted after truncation), one outlier decides the peak. Memory that rises in a training is as often this as a
    leak: a longer batch than all before it takes more room, and the allocator keeps it.
Confirm
    Print the token counts per batch and their maximum; run the longest sample alone.
Fix
    Truncate or drop over-long samples; check that the maximum length is really applied; group by length; sort the
    longest first, so that it fails at once or never; token-based batch sizes; packing to a fixed length.
Cost
    Truncation loses the tail of few samples; grouping by length changes the order of the data.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._interval import failing_step
from oomdoc.diagnosis.rules._late import AT_STEP, GROWS
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "long-sample"

_CLUES: Final = (
    Clue(
        "sudden",
        FAIR,
        says=r"\bsudden|usage jumps|(?:shoot|shot) up (?:so|much|sudden)|某个?(?:瞬间|时刻)|different moments|疯狂跳动"
        r"|at some point"
        r"|\bspike|突然|偶尔|某个(?:batch|样本|step)|(?:out of memory|oom) (?:errors? )?(?:\w{1,8} )?random"
        r"|once in a while|(?:occasional|sporadic)"
        r"|out of nowhere"
        r"|random(?:ly)? (?:oom|crash|fail)|(?:oom|crash|fail)\w{0,3} random|直接冲|intermittent|unpredictab|at random"
        r"|忽高忽低|显存[^\n]{0,6}波动|different steps? (?:each|every)|random (?:step|point|time|iteration)"
        r"|sometimes (?:it )?(?:oom|crash|fail)|有时(?:候)?(?:会)?(?:oom|爆|挂"
        r"|报)|时不时|随机",
        unless=r"\bkilled\b|cpu memory|host memory|\beval|validat|验证|serving|推理|illegal|zero\.init"
        r"|when training starts",
    ),
    Clue(
        "at-step",
        FAIR,
        says=AT_STEP,
    ),
    Clue(
        "said",
        FAIR,
        says=r"(?:specific|particular|certain|single|one) (?:sentence|sample|document|text|row|example|string|word"
        r"|paragraph)s?\b[^\n]{0,30}(?:\d{4,}|\blong\b)|(?:very|extremely|really) (?:long|large|big) (?:words?"
        r"|strings?|lines?|sentences?|paragraphs?|texts?"
        r"|documents?|passages?)|utterances?[^\n]{0,30}(?:above|over|longer|up to)|(?<!transcribing )(?:long|longer"
        r"|longest) (?:audio"
        r"|utterance|clip"
        r"|recording)s?|batch_bins"
        r"|too many (?:gt |ground.truth )?(?:boxes|objects|points|instances)|so many (?:gt )?boxes|variable batch"
        r"|(?:longest|over-?long|very long|long,|too long"
        r"|longer than max\w*) ?(?:not )?(?:filtered )?(?:sample|sequence|example|text|batch|one|sentence"
        r"|document|chain)|(?:samples?|examples?|sequences?).{0,24}(?:longer than|too long|not truncated)"
        r"|(?:not|without|no) truncat|no max.{0,3}length"
        r"|(?:var(?:y|ying|iable)|different|uneven).{0,10}lengths?|长(?:样本|文本|数据|序列)|超长"
        r"|平均.{0,6}\d+ ?tokens?|(?:data|input|sample|text) lengths?|long data|数据.{0,4}(?:太|过|较)长"
        r"|(?:lengths?|durations?)[^\n]{0,16}(?:from \d|between \d|rang|vary|varies|distribut)"
        r"|\d{1,2}(?:\.\d)?-\d{2,4} ?s"
        r"(?:ec\w{0,4})? (?:audio|clip|speech)|(?:最长|longest)[^\n]{0,20}(?:tokens?|长度|字|\d)|长短不一|长度(?:不一"
        r"|差)"
        r"|(?:some|a few|certain|one|several) (?:samples?|examples?|sequences?|documents?"
        r"|responses?) [^\n]{0,20}(?:long|limit|huge)|(?:extremely|unusually|abnormally) long|(?:samples|data"
        r"|sentences|documents|sequences) (?:differ|vary)|different (?:duration|length)s?\b|特别长|particular batch"
        r"|not enforced|average length|平均很短|long outputs?\b|longer batch"
        r"|\boutliers?\b|(?:longest|very long|huge) (?:docs?|conversations?|articles?|prompts?|dialog\w{0,4}"
        r"|turns?)|(?:a single|one) (?:batch|sample|conversation|document)\b[^\n]{0,20}(?:\d{2,3}k|long|huge"
        r"|thousand)|most (?:of )?(?:my |the |our )?(?:samples|examples|data|sequences"
        r"|documents)[^\n]{0,20}(?:short|below|under)|pad\w{0,4} to (?:the )?longest|padding[^\n]{0,14}最长"
        r"|个别(?:样本|数据|文本)|最长的(?:那)?[一几]?[条个]"
        r"|(?:some|certain|a few) batches [^\n]{0,24}(?:more|times|larger|bigger)"
        r"|group_by_length[^\n]{0,40}(?:first|immediately|at once|right away|一开始)|\b\d{2,5} (?:to|-"
        r"|~) \d{4,6} tokens|dynamic padding|动态 ?padding|飙[到升]|有的(?:样本|数据)[^\n]{0,10}(?:长|\d{4})"
        r"|个别 ?(?:batch|批)|(?:序列|句子|对话|样本)(?:太|过|特别|非常)长|same (?:sample|index|data point"
        r"|example)|重启[^\n]{0,6}断点[^\n]{0,8}又能",
    ),
    Clue(
        "one-dataset",
        STRONG,
        says=r"(?:disappear|works?|fine|trains?|runs?|no (?:problem|issue|error)|gone|success\w*)[^\n]{0,40}"
        r"(?:another|other|smaller|different|older?|previous|toy) (?:\w{1,12} )?(?:data ?sets?|corpus|corpora|data\b)"
        r"|(?:another|other|smaller|different|toy) (?:\w{1,12} )?(?:data ?sets?|corpus|data)[^\n]{0,40}"
        r"(?:works?|fine|no (?:problem|issue|error)|success)"
        r"|(?:when|if|after|once|but)[^\n]{0,40}(?:chang|switch|mov)\w{0,4} (?:it )?to [^\n]{0,40}(?:data\b|data ?sets?"
        r"|corpus)[^\n]{0,60}(?:oom|out of mem|memory)"
        r"|(?:换(?:了|成)?|用)(?:别的|其他|另一个?|小)[^\n]{0,4}数据集?[^\n]{0,12}(?:正常|可以|没问题|能跑|能训)",
        unless=r"\bkilled\b|cpu memory|host memory|\bram\b|内存",
    ),
    Clue(
        "same-place",
        FAIR,
        says=r"(?:always|every ?time|each time|consistently|总是|每次|都)[^\n]{0,40}(?:same|identical|exact|同一?个?) ?"
        r"(?:place|point|step|sample|batch|iteration|位置|地方|步|样本)"
        r"|steps? [^\n]{0,40}unchanged",
        unless=r"\bkilled\b|cpu memory|host memory|save_steps|\bsaving\b|when sav|保存",
    ),
    Clue(
        "uncut",
        FAIR,
        says=r"(?:不加|没有?(?:设|加|指定)|必须要?加|只能(?:添)?加)[^\n]{0,20}max_?(?:seq_?)?len\w{0,4}"
        r"|(?:without|unless|only (?:if|when|with)|need(?:s|ed)? to (?:set|add"
        r"|pass))[^\n]{0,20}max_?(?:seq_?)?len\w{0,4}",
        unless=r"max_?model_?len",
    ),
    Clue(
        "growth",
        FAIR,
        says=r"(?:显存|memory|vram|\bmem\b)[^\n]{0,40}(?:越来越|一直|不断|逐渐|持续|keeps? (?:on )?(?:increas|grow"
        r"|ris)"
        r"|increas\w{0,3}"
        r"|grow)"
        r"[^\n]{0,60}(?:训|step|train|epoch|iter|batch|oom|out of)"
        r"|(?:训练|training)[^\n]{0,20}(?:显存|memory)[^\n]{0,12}(?:一直|逐渐|不断|越来越|goes? up|go up|ris|increas"
        r"|grow)",
        unless=r"request|serving|rollout|generate|each call|推理|部署|服务|leak|泄",
    ),
    Clue(
        "one-rank",
        FAIR,
        says=r"rank ?\d (?:dies|fails|goes|先)|only (?:one|a single) rank|其他rank没事"
        r"|部分(?:单)?卡|其他卡.{0,16}波动|(?:some|other) (?:gpus|ranks|cards) (?:stay|are|use|fluctuat)",
    ),
    Clue(
        "below",
        FAIR,
        says=r"(?:usage|about|around|占用|稳定|约|usual\w{0,2}).{0,16}\d{1,3} ?(?:g|gb|gib)?.{0,10}(?:of|out of|/"
        r"|,).{0,4}\d{2,3} ?(?:g|gb|gib)?.{0,16}(?:before|right)|前期显存",
    ),
)
_SOUND: Final = r"\bspeech|\baudios?\b|utterance|\basr\b|\btts\b|espnet|wav2vec|librispeech|语音(?!助手)|音频"
"""Recordings of a data set differ in length more than texts do, and few programs cut them."""
_SHORT: Final = (
    r"(?:max\w{0,4}|longest|at most|up to|shorter than|最长|不超过)[^\n]{0,40}?(?<![\d.])(?:\d|1\d)(?:\.\d)? ?(?:s"
    r"|secs?"
    r"|seconds?|秒)\b"
)
"""Recordings of which the longest is below 20 s: what every recipe takes."""
_SPOKEN: Final = r"transcri|inference|synthesi|infer\b|推理|转录|识别(?:一|时)"


def weigh(view: View) -> Iterator[Reason]:
    """Late and sudden, or a request out of proportion."""
    if view.failure is not None and view.failure.kind != "device":
        return
    spoken = view.says(_SPOKEN) is not None
    reasons = [
        reason
        for reason in weigh_clues(view, CAUSE, _CLUES)
        if view.training or not spoken or reason.message.key != "cause.long-sample.said"
    ]
    yield from reasons
    grows = view.says(GROWS) if view.training and view.objective not in ("ppo", "grpo") else None
    if grows is not None and not any(r.message.key == "cause.long-sample.growth" for r in reasons):
        yield Reason(FAIR, say("cause.long-sample.growth", quote=grows.text.strip()[:90]), (grows,))
    apart = view.serving or spoken or view.says(_SHORT) is not None
    if not apart and (sound := view.says(_SOUND)) is not None:
        yield Reason(FAIR, say("cause.long-sample.sound", quote=sound.text.strip()[:90]), (sound,))
    failure, step = view.failure, failing_step(view)
    elsewhere = view.phase in ("load", "save", "eval", "evaluation")
    if failure is not None and step is not None and step >= 5 and view.training and not elsewhere:
        yield Reason(WEAK, say("cause.long-sample.late", step=step), (failure.signal.span,))
    requested, allocated, capacity = view.bytes_of("requested"), view.bytes_of("allocated"), view.bytes_of("capacity")
    if (
        requested
        and allocated
        and capacity
        and view.training
        and requested > 0.25 * capacity
        and allocated < 0.6 * capacity
    ):
        yield Reason(WEAK, say("cause.long-sample.request", requested_bytes=requested, allocated_bytes=allocated))
