"""Failures after steps that went well: what is there from the first step on is not what ran out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import FAIR, STRONG, View
from oomdoc.intake.sieve import alternatives
from oomdoc.messages import say

__all__ = ["AT_STEP", "GROWS", "long_past", "ran_first"]

AT_STEP: Final = (
    r"after (?:training )?(?:on )?(?:several|some|many|a few|hundreds of|thousands of|dozens of) (?:hundred |thousand "
    r"|training )?(?:of )?(?:examples|samples|sentences)"
    r"|after (?:several|some|many|hundreds of|thousands of|dozens of) (?:hundred |thousand |training )?(?:steps"
    r"|iter\w{0,7}|batches|epochs)"
    r"|after (?:training )?(?:for )?~?\d{2,6}\+? (?:steps|iter)|after a while|(?:at|in|around|until|on"
    r"|step|第) ?(?:the )?(?:step|iteration|iter|batch)? ?\d{2,7}(?:(?:th|st|nd"
    r"|rd)? (?:step|iteration|iter)| ?步|(?= ?\())|(?:at|around|until|on) (?:step|iteration"
    r"|iter) \d{2,6}|\d{2,6} steps?,? then|after half|half.?way|a few (?:hundred|thousand) steps"
    r"|after (?:a )?few steps|[几数上]?[百千万]多?步|步数不固定|跑(?:了)?几步|same (?:point|place|step|sample)"
    r"|训(?:练)?(?:到|了)?.{0,4}(?:几十|几百|上百|上千|\d{1,6}\+?) ?个?(?:steps?|步|samples?|条|样本)|训着训着"
    r"|(?:不到|几十|几百) ?\d{0,4} ?个?(?:steps?|步)|steps before are fine|epoch \d+: +\d{3,}|(?:second|2nd"
    r"|third|next) (?:batch|step|iteration)"
    r"|(?:约|大约|大概|在) ?\d{2,6} ?个?(?:steps?|步|iter)|\d{2,6} ?(?:steps?|步|iter\w{0,7}) ?(?:左右|附近"
    r"|之后|后|时)"
    r"|(?:in the )?middle of (?:the )?(?:training|epoch|run)|训练(?:到)?(?:一半|中途)|中途|(?:跑|训练)了?(?:几"
    r"|\d{1,3}) ?个?(?:小时|天)"
    r"|after (?:a few|several|some|\d{1,3}) (?:hours|epochs)|epoch 0?\.\d|一段时间(?:之)?后"
    r"|\d{1,2} ?个?多?小时(?:之)?后"
    r"|一开始(?:能|可以|正常)"
    r"|(?:训练|跑)到 ?\d{2,6} ?多?个? ?(?:样本|数据|step|步|条)|after (?:more than )?(?:an hour|some time|a while)"
    r"|(?:微调|训练|训|跑|坚持|运行)了? ?(?:大概|大约|约|近|快)? ?(?:[几半两一二三]|\d{1,3}) ?个?多?(?:小时"
    r"|钟头|天|分钟)"
    r"|(?:an|one|two|several|few|\d{1,3}) (?:hours?|days?|minutes) (?:later|in(?:to)?\b)"
    r"|(?:runs|trains|ran|trained) for (?:about |around |~)?(?:an?|one|two|several|some"
    r"|\d{1,3}) (?:\w{1,6} )?(?:hours?|days?|minutes|while|time)"
    r"|(?:at|around|after|reach\w{0,3}|until) \d{1,2} ?% (?:of )?(?:the |an? )?(?:training|epoch|progress|way)"
    r"|(?:训练?|跑|进行)[到了] ?\d{1,2} ?%"
    r"|同一个? ?(?:step|步|位置|地方|样本)|\d{1,3}k (?:steps|iterations)|(?:训|跑)了(?:几|好几|上)百步"
    r"|(?:trains|works|runs|ran) (?:fine |well |normally )?(?:at first|for a while|in the beginning)"
)
"""How people say that some steps, samples or hours had gone before."""
_AT_STEP: Final = alternatives(AT_STEP)


_SOMETIMES: Final = alternatives(
    r"\bintermittent\w{0,2}\b|\bsporadic\w{0,4}\b|\bonce in a while\b|every now and then|\bnot every (?:run|time)\b"
    r"|\d{1,2} ?% of (?:the |my |all )?(?:runs|jobs|attempts|time)|sometimes (?:it |the run "
    r"|training )?(?:works|fits|runs|passes|oom|fail|crash)"
    r"|时好时坏|有时候?(?:可以|能|会|又|正常|oom|爆)|偶尔(?:会|能|oom|爆|报|出现)|不是每次|偶发|概率性"
)
"""The same job passes and fails: what is the same in every run is not what differs."""


GROWS: Final = (
    r"(?:显存|memory|vram|\bmem\b)[^\n]{0,40}(?:越来越|一直|不断|逐渐|持续|keeps? (?:on )?(?:increas|grow|ris|climb)"
    r"|gradual|steadi|continu)"
)
"""Growth in a training of samples: as often as not a longer batch than those before it, for which room is kept."""


def long_past(view: View) -> bool:
    """Whether steps, samples or hours of a training had gone well."""
    step = view.failure.step if view.failure is not None else None
    return view.training and ((step is not None and step >= 5) or _AT_STEP.search(view.text) is not None)


def ran_first(view: View) -> Iterator[Reason]:
    """Against what is allocated once, before or in the first step of a training."""
    if long_past(view):
        yield Reason(-STRONG, say("cause.ran-first"))
    elif _late_at_times(view):
        yield Reason(-FAIR, say("cause.ran-first"))


def _late_at_times(view: View) -> bool:
    """Whether it fails in some runs only, in an evaluation of a training, or after what it takes has grown."""
    if _SOMETIMES.search(view.text) is not None:
        return True
    evaluates = view.phase in ("eval", "evaluation") and view.phase_shown
    return view.training and (evaluates or view.says(GROWS) is not None)
