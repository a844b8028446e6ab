"""Numbers as people say them: ``8k``, ``two``, ``两``, ``十六``, ``16,384``."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = {
    "one": 1,
    "a": 1,
    "single": 1,
    "two": 2,
    "both": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "twelve": 12,
    "sixteen": 16,
    "twenty": 20,
    "thirty-two": 32,
    "sixty-four": 64,
}
_DIGITS: Final = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "双": 2, "单": 1}

NUMBER: Final = (
    r"(?:\d{1,3}(?:,\d{3}){1,3}|\d{1,9}(?:\.\d{1,3})?\s?[kK万]?(?![A-Za-z0-9])"
    r"|(?<!第)(?!一\s?[半点下些样起步直次定般会共切遍旦边])[零一二两三四五六七八九十百]{1,5}(?!\s?(?:分之|倍))"
    r"|[单双](?=\s?(?:张|块|卡|机|台|个?节点|gpu|GPU))"
    r"|(?:one|single|two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen|twenty|thirty-two|sixty-four)\b(?:\sk\b)?)"
)
"""A pattern that :func:`read_number` understands; bounded, without groups."""

_PLAIN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?|\.\d{1,3})\s?([kK万]?)\Z")


def read_number(text: str) -> float:
    """The number; ``8k`` and ``6k`` are 8,192 and 6,144, as people mean it of lengths; ``10k`` is 10,000.

    :raises ValueError: where it is none.
    """
    text = text.strip().lower().replace(",", "")
    if text in _WORDS:
        return float(_WORDS[text])
    if text.endswith(" k") and text[:-2] in _WORDS:
        return read_number(f"{_WORDS[text[:-2]]}k")
    match = _PLAIN.match(text)
    if match:
        value = float(match[1])
        if match[2] == "万":
            return value * 10_000
        if match[2]:
            return value * (1000 if value != int(value) or value % 5 == 0 else 1024)
        return value
    return float(_chinese(text))


def _chinese(text: str) -> int:
    total, digit = 0, 0
    for character in text:
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif character == "十":
            total, digit = total + (digit or 1) * 10, 0
        elif character == "百":
            total, digit = total + (digit or 1) * 100, 0
        else:
            raise ValueError(f"{text!r} is not a number")
    if not text:
        raise ValueError("no number")
    return total + digit
