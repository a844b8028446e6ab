"""Numbers as people write them: ``8``, ``two``, ``两``, ``十六``, ``4k``, ``1,024``."""

from __future__ import annotations

from typing import Any, Final

_WORDS: Final[dict[str, int]] = dict(
    zip(
        ("单", "一", "俩", "两", "双", "二", "三", "四", "五", "六", "七", "八", "九", "十"),
        (1, 1, 2, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        strict=True,
    ),
    **{
        "a": 1,
        "an": 1,
        "one": 1,
        "single": 1,
        "two": 2,
        "dual": 2,
        "pair of": 2,
        "couple of": 2,
        "three": 3,
        "four": 4,
    },
    **{"five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16},
    **{"thirty-two": 32, "sixty-four": 64},
)
COUNT: Final = (
    r"(?:\d{1,4}(?![\d.])|one|single|pair of|couple of|an?|two|dual|three|four|five|six|seven|eight|nine|ten|twelve"
    r"|sixteen|thirty-two|sixty-four|[一二三四五六七八九]?十[一二三四五六七八九]?|[单一两俩双二三四五六七八九])"
)
"""One count, case-insensitively."""


def to_count(word: str) -> int:
    """The number that :data:`COUNT` matched."""
    if "十" in word and len(word) > 1:
        tens, _, ones = word.partition("十")
        return 10 * (_WORDS[tens] if tens else 1) + (_WORDS[ones] if ones else 0)
    return int(word) if word.isdecimal() else _WORDS[word.lower()]


def to_tokens(text: str) -> int | None:
    """Tokens of ``2048``, ``8k``, ``32K``, ``1,024``, ``0.5M``, ``65_536``; ``None`` where it is none of them.

    ``8k`` is 8192 and ``32k`` 32768, the lengths that models are built for; ``10k`` and ``100k`` are round numbers.
    """
    cleaned = text.replace(",", "").replace("_", "").replace(" ", "").lower()
    scale = 1
    if cleaned[-1:] in ("k", "m"):
        scale, cleaned = (1024 if cleaned[-1] == "k" else 1024**2), cleaned[:-1]
    try:
        value = float(cleaned)
    except ValueError:
        return None
    if scale == 1024 and (value % 10 == 0 or value % 25 == 0) and value != 40:
        scale = 1000
    return round(value * scale)


def typed(text: str) -> Any:
    """A value as the tables write it: ``true``, ``3``, ``lora``; what is offloaded is a tuple, ``optimizer+param``."""
    if text in ("true", "false"):
        return text == "true"
    if text.isdigit():
        return int(text)
    return tuple(text.split("+")) if text.split("+", maxsplit=1)[0] in ("optimizer", "param") else text
