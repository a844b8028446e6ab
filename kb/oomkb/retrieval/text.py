"""Text to search words: identifiers whole and in parts, English stems, Chinese in pairs of characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from oomkb.lazy import lazy

MAX_CHARS: Final = 20_000
"""More than this of a query or a record is not read: the digest of a log is a few KB."""

_CJK: Final = "\u3400-\u4dbf\u4e00-\u9fff"
_PIECE: Final = lazy(rf"[{_CJK}]+|(?<![\w.])-\d{{1,2}}(?!\w)|[A-Za-z0-9_]+(?:[.\-/:][A-Za-z0-9_]+)*")
_RUN: Final = lazy(rf"[{_CJK}]+")
_PART: Final = lazy(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NUMBER: Final = lazy(r"[\d.:/]+(?:e\d+|k|g|b|gb|gib|mb|mib|x)?", re.IGNORECASE)
_EXIT_CODES: Final = frozenset({"-9", "-11", "-7", "-15", "137", "139", "135", "143"})
_STOP: Final = frozenset(
    """a an and are as at be but by do does for from had has have i if in into is it its me my no not of on or our so
    that the their then there this to was we were what when where which while who why will with would you your just
    like same get gets got can could should am about after before any all than too very how""".split()  # noqa: SIM905
)


def is_cjk(character: str) -> bool:
    """Whether it is a Chinese character."""
    return bool(_RUN.match(character))


def cjk_runs(text: str) -> Iterator[re.Match[str]]:
    """The stretches of Chinese characters."""
    return _RUN.finditer(text)


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without its English ending, so that save, saved, saves and saving are one."""
    for ending, keep in (("ies", 4), ("ing", 4), ("ed", 4), ("es", 4), ("s", 3)):
        if word.endswith(ending) and len(word) - len(ending) >= keep - 1 and not word.endswith("ss"):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word[-1] in "ey" else word


def search_words(text: str) -> list[str]:
    """Every search word of the text, in order, repeated as often as it occurs.

    ``stage3_prefetch_bucket_size`` gives itself and ``stage3``, ``prefetch``, ``bucket``, ``size``; 词表太大 gives
    its pairs. Bare numbers say nothing and are left out, exit codes such as -9 and 137 are kept.
    """
    words: list[str] = []
    for match in _PIECE.finditer(text[:MAX_CHARS]):
        words += _words_of(match.group())
    return words


def spellings(text: str) -> dict[str, str]:
    """Search word -> how the text spells it, for showing: ``sav`` -> saving."""
    found: dict[str, str] = {}
    for match in _PIECE.finditer(text[:MAX_CHARS]):
        piece = match.group()
        if not is_cjk(piece[0]):
            found.setdefault(stem(piece.lower()), piece)
            for part in _PART.findall(piece):
                found.setdefault(stem(part.lower()), part.lower())
    return found


@lru_cache(maxsize=8192)
def _words_of(piece: str) -> tuple[str, ...]:
    """The search words of one piece; the words of logs repeat."""
    if is_cjk(piece[0]):
        return tuple(piece[i : i + 2] for i in range(len(piece) - 1)) or (piece,)
    if piece in _EXIT_CODES:
        return (piece,)
    return () if _NUMBER.fullmatch(piece) else tuple(_latin(piece))


def _latin(piece: str) -> list[str]:
    whole = piece.lower()
    parts = [p.lower() for p in _PART.findall(piece) if len(p) > 1 and not p.isdigit()]
    if len(parts) <= 1 and "_" not in piece and not any(c in piece for c in ".-/:"):
        return [] if whole in _STOP or len(whole) < 2 else [stem(whole)]
    return [whole, *(stem(part) for part in parts if part not in _STOP)]
