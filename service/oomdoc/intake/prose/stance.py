"""Whether what is said here failed, or is only denied, wished for or said of a run that was fine.

Facts come from what failed. "Works with batch 1", "on 4.37 it ran" and "without gradient checkpointing" hold values
too, of other runs; they count only where nothing else is said. Advice and other people's machines count not at all.
"""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.sieve import Expression

__all__ = ["clause", "denied", "doubt", "negated", "worked"]

_END: Final = Expression(
    r"[.!?。；;！？](?=\s|$|[一-鿿])|[，,](?=\s|[一-鿿])|[(（)）]|\b(?:while|whereas|but|however|until)\b|但是?|而"
    r"|换成|一旦"
)
_STOP: Final = Expression(
    r"[.!?](?=\s|$)|[。；;！？\n]|\b(?:while|whereas|but|however|until|then)\b|但是?|而|换成|一旦|然后"
)
_ASIDE: Final = re.compile(r"[(（][^()（）\n]{0,90}[)）]")
"""What stands in brackets, for whoever stands outside them."""
_WORKED: Final = re.compile(
    r"\b(?:works?|worked|working|fine(?![- ]?(?:tun|grain))|runs? (?:fine|well|ok|as)|ran (?:fine|as|with)|just runs"
    r"|no (?:error|issues?)|without (?:any )?(?:error|problem|issue)s?|succe\w{2,8}|is enough|enough for|manage[ds]? to"
    r"|able to (?:train|run|fit|load)|can (?:be )?(?:train|run|load)|could run|ok\b|as expected|did not (?:oom|fail))"
    r"|成功|正常|没问题|可以[训跑]|能[跑训]|就[行好]|就不|跑得?通|不会|够用|放得下",
    re.IGNORECASE | re.ASCII,
)
_FAILED: Final = Expression(
    r"\boom(?:s|ed|ing|killed)?\b|out of memory|fail|crash|dies\b|died\b|error|爆|溢出|失败|报错|不够|doesn'?t work"
    r"|not work"
    r"|killed|exceed",
    re.IGNORECASE | re.ASCII,
)
_WISH: Final = Expression(
    r"\b(?:could someone|how (?:can|to|should)|is it possible|would|should (?:be|do)|teach me|support for"
    r"|plans? (?:to|for)"
    r"|want to|expected|recommend|readme|requires?|needs?)\b|希望|请问|如何|怎么(?:才|能)|需要多少|能否|是否支持"
    r"|期望|写的是",
    re.IGNORECASE | re.ASCII,
)
_ELSEWHERE: Final = Expression(
    r"\b(?:in (?:the|their) (?:paper|docs?|documentation|readme|blog|report)|(?:the )?(?:paper|authors?|readme|others?"
    r"|somebody|someone)(?: else)? (?:use[ds]?|says?|said|train|ha[sd]|claims?|reports?|reported|with)|should (?:I"
    r"|we)|(?:please|just|can you) try"
    r"|have(?:n'?t| not) tried|not (?:yet )?tried)\b|论文[里中]|别人|要不要|是不是(?:要|该)|还没试",
    re.IGNORECASE | re.ASCII,
)
"""What somebody else did, or nobody yet."""
_NOT: Final = Expression(
    r"(?:\b(?:without|no|not(?: using| use)?|don'?t(?: use)?|disabl\w{1,4}|turn(?:ed|ing)? off|instead of"
    r"|rather than|except|lacks?|n't|never|neither)\b"
    r"|(?:没有?|未|不)(?:有|打?开启?|启用|使用|用|加|设置?)?|关闭了?|无|而不是)[\w\s\-]{0,24}\Z",
    re.IGNORECASE | re.ASCII,
)
_DENIED: Final = Expression(
    r"[\"'`]?\s{0,2}(?:[=:：,，(（]\s{0,2}|(?:it |is|was|were|are|has been|turned|set to|都|已|也|是) {0,1}){0,3}"
    r"(?:disabled|off\b|false\b|not (?:installed|supported|enabled|used|available|on\b|set\b)|unavailable|unsupported"
    r"|关闭|关了|没开|未开|没有开|不支持|没装|未安装|装不上)",
    re.IGNORECASE | re.ASCII,
)


def clause(text: str, start: int, end: int) -> str:
    """The clause around ``text[start:end]``, at most 200 characters."""
    before, after = text[max(0, start - 140) : start], text[end : end + 140]
    if "(" in text or "（" in text:
        before, after = _ASIDE.sub(" ", before), _ASIDE.sub(" ", after)
    ends = [m.end() for m in _END.finditer(before)]
    stop = _END.search(after)
    return before[ends[-1] if ends else -110 :] + text[start:end] + after[: stop.start() if stop else 90]


def worked(text: str, start: int, end: int) -> bool:
    """Whether the clause speaks of a run that did not fail, or of a wish."""
    here = clause(text, start, end)
    return bool(_WORKED.search(here) or _WISH.search(here)) and not _FAILED.search(_WORKED.sub(" ", here))


def doubt(text: str, start: int, end: int) -> float:
    """How much less sure a value is for what its clause says: 0.0, 0.2 for a run that was fine, 0.6 elsewhere."""
    here = clause(text, start, end)
    if _ELSEWHERE.search(here):
        return 0.6
    fine, failed = _WORKED.search(here) or _WISH.search(here), _FAILED.search(_WORKED.sub(" ", here))
    if not fine and not failed:
        here = _sentence(text, start, end)
        fine, failed = _WORKED.search(here), _FAILED.search(_WORKED.sub(" ", here))
    return 0.2 if fine and not failed else 0.0


def _sentence(text: str, start: int, end: int) -> str:
    """The sentence around ``text[start:end]``, as far as nothing is set against it; at most 240 characters."""
    before, after = text[max(0, start - 120) : start], text[end : end + 120]
    begun = [m.end() for m in _STOP.finditer(before)]
    stop = _STOP.search(after)
    return before[begun[-1] if begun else 0 :] + text[start:end] + after[: stop.start() if stop else 120]


def denied(text: str, end: int) -> bool:
    """Whether what follows says that it is off, or cannot be had."""
    return _DENIED.match(text, end, end + 40) is not None


def negated(text: str, start: int) -> bool:
    """Whether a negation stands shortly before."""
    return _NOT.search(text[max(0, start - 32) : start]) is not None
