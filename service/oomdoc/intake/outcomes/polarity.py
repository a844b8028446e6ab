"""Whether a mention of a failure says that it happens: not where it is denied, feared, asked about or solved."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EXPECTED", "inside_a_name", "is_past", "stands"]

_PAUSES: Final = re.compile(r"[,，、(（)）:：]")
_I: Final = re.IGNORECASE | re.ASCII
EXPECTED: Final = re.compile(
    r"\b(?:expected|desired) (?:behaviou?r|result|outcome)|预期(?:行为|结果)?|期望(?:行为|结果)?", _I
)
_ENDS: Final = re.compile(r"[!?。！？;；\n]|\.(?=\s|$)")
_TURNS: Final = re.compile(
    r"\b(?:but|however|although|though|yet|until|unless|then|now)\b|但是?|然而|可是|不过|否则|而且", _I
)
_FEW: Final = r"(?: (?!(?:and|so|because|still|due|from|with|since|as|enough)\b)[\w'/-]{1,20}){0,3} ?[\"'`(]?\Z"
_DENIED: Final = re.compile(
    rf"\b(?:no|not|without|never|zero|\w{{1,6}}n[’']t|cannot|avoid\w{{0,3}}|prevent\w{{0,3}}"
    rf"|instead of|rather than|free of"
    rf"|fix(?:ed|es)|solv(?:ed|es)|resolv(?:ed|es)|got rid of|eliminat(?:ed|es)|handl(?:e|es|ing)|catch(?:es|ing)?"
    rf"|recover\w{{0,3}} from|protect\w{{0,3}} (?:from|against)|reduces?|mitigat\w{{1,3}}|except){_FEW}"
    r"|(?:不会|没有?|无|未|不再|避免|防止|以免|预防|减少|解决了|不是|并非)[^，。,\n]{0,4}\Z",
    _I,
)
_CANNOT: Final = re.compile(r"\b(?:cannot|can[’']?t|unable|impossible|not possible)\b|不能|无法", _I)
_SUPPOSED: Final = re.compile(
    rf"\b(?:might|may|could|can (?:lead|cause|result|trigger|run|also)|would (?:likely|probably)|likely to"
    rf"|risk(?:s|ing)?(?: of)?|chances? of|danger of|prone to|worr\w{{1,4}} (?:about|that)"
    rf"|afraid of|in case(?: of)?|whether|so that|to see if"
    rf"|if (?:it|you|this|that|they|we|there|i)|what happens (?:if|when|on)){_FEW}"
    r"|(?:可能会?|会不会|是否会?|容易|担心|怕|万一|以防|如果|有没有)[^，。,\n]{0,4}\Z",
    _I,
)
_SOLVED: Final = re.compile(
    r"[^.。\n]{0,24}(?<!not )(?<!n't )(?:\b(?:is|are|was|were|went|has been|got)? ?"
    r"(?:fixed|solved|resolved|gone|away)\b"
    r"|disappear\w{0,3}|no longer|any ?more|解决了|没了|消失|不再)",
    _I,
)
_YES_OR_NO: Final = re.compile(
    r"\A\W{0,4}(?:(?:so|and|also|hi|hello|hey|question)[,:]? )?(?:will|would|could|can|does|do|is|are|should"
    r"|may|might)\b"
    r"|\b(?:says?|thinks?|guess|suspects?|maybe|perhaps)\b|\b(?:what|which|how (?:much|many|large|big|long"
    r"|likely)|is it|will it|would it|does it|do i|can i|should i)\b"
    r"|会不会|会.{0,16}吗|够吗|够不够|能不能|能否|是否|多少|多大|可以.{0,12}吗|吗\W{0,2}\Z",
    _I,
)
_ASKED_ABOUT: Final = re.compile(
    r"\bwhy\b|\bhow come\b|\b(?:fix|solve|resolve|debug)\b|wrong|caus(?:e|ing)|reason|\b(?:i|we)(?: still"
    r"| always| just)? (?:got|had|ran|am getting|keep)\b"
    r"|keeps?\b|always|still|为什么|为何|怎么(?:办|解决|回事|还)|如何解决|还是|一直",
    _I,
)
_PAST: Final = re.compile(
    r"\b(?:previously|earlier|before|last (?:week|time|month)|yesterday|used to|at first|initially|originally|first)\b"
    r"|之前|以前|上次|原来|一开始|昨天",
    _I,
)
_NAMED_BEFORE: Final = re.compile(r"[\w/.\-=]\Z", re.ASCII)
_NAMED_AFTER: Final = re.compile(r"[-_=.]\w|\w", re.ASCII)


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """The bounds of the sentence around ``text[start:end]``, its mark included; at most 300 characters each way."""
    first = max(0, start - 300)
    begins = [m.end() for m in _ENDS.finditer(text, first, start)]
    stop = _ENDS.search(text, end, end + 300)
    return (begins[-1] if begins else first), (stop.end() if stop else min(len(text), end + 300))


def stands(text: str, start: int, end: int, *, expected: bool = False) -> bool:
    """Whether the mention ``text[start:end]`` says that it happened or happens.

    :param expected: whether it stands under "Expected behavior": what is denied there is what happened.
    """
    first, last = _sentence(text, start, end)
    turns = [m.end() for m in _TURNS.finditer(text, first, start)]
    before = text[turns[-1] if turns else first : start]
    turn = _TURNS.search(text, end, last)
    after = text[end : turn.start() if turn else last]
    if (denied := _DENIED.search(before)) is not None:
        return expected or ("without" in denied[0].lower() and _CANNOT.search(before) is not None)
    if _SUPPOSED.search(before) or _SOLVED.match(after):
        return False
    if not text[first:last].rstrip().endswith(("?", "？", "吗", "呢")):
        return True
    pauses = [m.end() for m in _PAUSES.finditer(text, first, start)]
    pause = _PAUSES.search(text, end, last)
    clause = text[pauses[-1] if pauses else first : pause.start() if pause else last]
    return not (_YES_OR_NO.search(clause) and not _ASKED_ABOUT.search(clause))


def is_past(text: str, start: int, end: int) -> bool:
    """Whether the sentence tells of an earlier time."""
    first, last = _sentence(text, start, end)
    return _PAST.search(text, first, last) is not None


def inside_a_name(text: str, start: int, end: int) -> bool:
    """Whether the mention is a part of an option, a path or a file's name: ``--oom-score``, ``run_oom.sh``."""
    found = text[start:end]
    if found[:1] > "\x7f":
        return False
    dotted = found.lower().startswith("outofmemory")
    before = text[max(0, start - 1) : start]
    return bool(_NAMED_BEFORE.match(before) and not (dotted and before == ".")) or bool(
        _NAMED_AFTER.match(text, end, end + 2) and found[-1:].isascii() and not dotted
    )
