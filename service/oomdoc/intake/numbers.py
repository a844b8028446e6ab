"""Numbers as people write and say them: ``8``, ``8k``, ``16,384``, ``two``, ``两``, ``十六``; table values; sizes."""

from __future__ import annotations

import re
from typing import Any, Final

_WORDS: Final = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"a": 1, "an": 1, "single": 1, "both": 2, "dual": 2, "pair of": 2, "couple of": 2},
    **{"twelve": 12, "sixteen": 16, "twenty": 20, "thirty-two": 32, "sixty-four": 64},
}
_DIGITS: Final = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "俩": 2, "双": 2, "单": 1}
_ENGLISH: Final = "two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen|thirty-two|sixty-four"
NUMBER: Final = (
    r"(?:\d{1,3}(?:,\d{3}){1,3}|\d{1,9}(?:\.\d{1,3})?\s?[kK万]?(?![A-Za-z0-9])"
    r"|(?<!第)(?!一\s?[半点下些样起步直次定般会共切遍旦边])[零一二两三四五六七八九十百]{1,5}(?!\s?(?:分之|倍))"
    r"|[单双](?=\s?(?:张|块|卡|机|台|个?节点|gpu|GPU))"
    rf"|(?:one|single|twenty|{_ENGLISH})\b(?:\sk\b)?)"
)
"""A pattern of what :func:`read_number` understands; bounded, without groups."""
COUNT: Final = (
    rf"(?:\d{{1,4}}(?![\d.])|one|single|pair of|couple of|an?|dual|{_ENGLISH}"
    r"|[一二三四五六七八九]?十[一二三四五六七八九]?|[单一两俩双二三四五六七八九])"
)
"""One count, case-insensitively."""
_SHORT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?|\.\d{1,6}) ?([km万]?)")


def read_number(text: str) -> float:
    """The number; ``8k`` and ``32k`` are 8192 and 32768, the lengths that models are built for, ``10k`` is round.

    :raises ValueError: where it is none.
    """
    text = text.strip().lower().replace(",", "").replace("_", "")
    if text in _WORDS:
        return float(_WORDS[text])
    if text.endswith(" k") and text[:-2] in _WORDS:
        text = f"{_WORDS[text[:-2]]}k"
    if (match := _SHORT.fullmatch(text)) is None:
        return float(_chinese(text))
    value = float(match[1])
    is_round = (value % 10 == 0 or value % 25 == 0) and value != 40
    return value * {"": 1, "k": 1000 if is_round else 1024, "m": 1024**2, "万": 10_000}[match[2]]


def to_count(word: str) -> int:
    """The number that :data:`COUNT` matched."""
    return int(read_number(word))


def to_tokens(text: str) -> int | None:
    """Tokens of ``2048``, ``8k``, ``1,024``, ``0.5M``, ``65_536``; ``None`` where it is none of them."""
    try:
        return round(read_number(text.replace(" ", "")))
    except ValueError:
        return None


def _chinese(text: str) -> int:
    total, digit = 0, 0
    for character in text:
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif character in "十百":
            total, digit = total + (digit or 1) * (10 if character == "十" else 100), 0
        else:
            raise ValueError(f"{text!r} is not a number")
    if not text:
        raise ValueError("no number")
    return total + digit


def numbers_in(text: str) -> list[float]:
    """The numbers in a value's words; those of ``bf16`` and ``zero3`` are parts of names."""
    return [float(found) for found in _WRITTEN.findall(text[:400])]


_WRITTEN: Final = re.compile(r"(?<![a-z])(?<![a-z]_)\d+(?:\.\d+)?|(?<=rtx)\d+", re.IGNORECASE)


def typed(text: str) -> Any:
    """A value as the tables write it: ``true``, ``3``, ``lora``; what is offloaded is a tuple, ``optimizer+param``."""
    if text in ("true", "false"):
        return text == "true"
    if text.isdigit():
        return int(text)
    return tuple(text.split("+")) if text.split("+", maxsplit=1)[0] in ("optimizer", "param") else text


SIZE: Final = r"([0-9]{1,20}(?:\.[0-9]{1,12})?) ?((?:[KMGTPE]i?B|[KMGT]i?b|[kKMGT](?![A-Za-z])|bytes?|B)(?![A-Za-z]))"
"""Two groups: number and unit, as in ``4.64 GiB``; bounded, for a line as it stands."""

SQUEEZED_SIZE: Final = r"([0-9]{1,20}(?:\.[0-9]{1,12})?)([KMGTPE]iB|[KMGTPE]B|bytes?|B)"
"""The same in a text without any blanks, where the next word follows at once."""

_POWER: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def to_bytes(number: str, unit: str = "") -> int:
    """Bytes of a logged size; every prefix is read as binary, which is what allocators and engines print.

    >>> to_bytes("1.50", "GiB")
    1610612736
    """
    prefix = unit[:1].lower()
    return round(float(number) * (1 << 10 * _POWER.get(prefix, 0)))
