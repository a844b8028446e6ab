"""In which phase of a job it failed, as people say it: the words of a phase near the words of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.phases import phase_table

__all__ = ["phase_of_program", "phase_of_prose"]

_I: Final = re.IGNORECASE | re.ASCII
_FAILS: Final = re.compile(
    r"oom|out[ -]of[ -](?:\w{1,6} )?mem|memory (?:error|overflow|leak|spike|grow|increas|usage)|ran out"
    r"|runs? out|kill|exhaust|crash|\bfail"
    r"|\bdies\b|\bdied\b|error|exceed|allocat|爆|不足|不够|溢出|超|炸|杀|报错|挂|崩|增长|涨|上升|占满|失败|遇到|problem|issue",
    _I,
)
_SENTENCE: Final = re.compile(
    r"[。！？!?;；\n]|\.(?=\s|$)|\b(?:but|however|whereas|although)\b|但是?|不过|而且?(?=在|到)", _I
)
_WORKS: Final = re.compile(
    r"\b(?:works?|worked|fine|succeeds?|succeeded|ok|no (?:problem|issue|error|oom)s?"
    r"|without (?:any )?(?:problem|issue|error|oom))\b"
    r"|没问题|没有问题|正常|成功|顺利|可以",
    _I,
)
_AT: Final = re.compile(
    r"\b(?:when(?:ever)?|while|during|at|in|on|upon|after|once|trying to|tr(?:y|ied) to|of)\b[^,，]{0,24}\Z"
    r"|[在到一]\s?\Z|(?:开始|进行|做)\s?\Z",
    _I,
)
_AFTER: Final = re.compile(
    r"[^,，。]{0,6}(?:时|的时候|阶段|过程|就|中|后|会|一直)|\(\)|(?:es|s)? (?:oom|fail|crash|die|run out)", _I
)
_BEFORE: Final = re.compile(r"\bbefore\b[^,.]{0,24}\Z", _I)
"""A phase that had not begun."""
_MOST: Final = 10_000
_FAR: Final = 60
"""Characters between the words of a phase and those of a failure beyond which they are not of each other."""


def phase_of_prose(text: str, *, engine: bool = True) -> str | None:
    """The phase whose words stand nearest to those of a failure, said with "when", "during", "时" before all others.

    :param engine: whether an engine may be what fails: "when eval starts" is not, where none is named.
    """
    best: tuple[float, str] | None = None
    for sentence in _SENTENCE.split(text[:_MOST]):
        if sentence is None:
            continue
        for weight, phase in _of_sentence(sentence[:600]):
            if (engine or phase != "engine-init") and (best is None or weight > best[0]):
                best = (weight, phase)
    return best[1] if best is not None and best[0] >= _LEAST else None


_LEAST: Final = 0.3


def _of_sentence(sentence: str) -> Iterator[tuple[float, str]]:
    fails = [m.span() for m in _FAILS.finditer(sentence)]
    if not fails:
        return
    for rank, (phase, pattern) in enumerate(phase_table("prose")):
        for found in pattern.finditer(sentence):
            start, end = found.span()
            distance = min(max(start - stop, begin - end, 0) for begin, stop in fails)
            if distance > 2 * _FAR or _BEFORE.search(sentence[:start]) or _WORKS.search(sentence[end : end + 16]):
                continue
            timed = (
                _AT.search(sentence[max(0, start - 40) : start]) is not None or _AFTER.match(sentence, end) is not None
            )
            if timed or distance <= _FAR:
                yield (2.0 if timed else 1.0) - distance / 100 - rank / 1000, phase


def phase_of_program(text: str) -> str | None:
    """The phase of a program that does nothing else, by its name; of a pasted script that only loads a model."""
    text = text[:_MOST]
    for phase, pattern in phase_table("program"):
        if pattern.search(text):
            return phase
    return "load" if "from_pretrained(" in text and not _WORKED_ON.search(text) else None


_WORKED_ON: Final = re.compile(
    r"\.(?:generate|chat|encode|predict|embed|run|fit|step|infer|backward)\(|\b(?:pipe(?:line)?|model"
    r"|tokenizer)\(|\btrain|fine-?tun|微调|训练"
    r"|推理|\bfor [\w, ]{1,40} in\b|\bepochs?\b",
    _I,
)
