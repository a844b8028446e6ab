"""A text as tokens: words with what they mean, numbers with their units, and names of models, cards and formats.

The words and their meanings are those of :mod:`oomdoc.intake.statements.concepts`, so that ``colleagues`` and ``同事``
are one concept. A number inside a name is a part of it; a count before a card and a size behind it are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from oomdoc.intake.patterns import patterns
from oomdoc.intake.statements.concepts import lexicon, stem
from oomkb.catalog import gpus, models

_RE: Final = patterns(__file__)


class Token(NamedTuple):
    """One token where it stands."""

    key: int
    """Checksum of its word, its name's kind or its unit."""
    concepts: tuple[int, ...]
    start: int
    end: int
    number: str = ""
    """The number as it is written, with its unit; empty where it is none."""
    unit: str = ""
    """``G M T K B % bit tokens n`` (a bare number), ``share`` (below one) or ``word``."""
    pause: bool = False
    word: str = ""
    """A word in small letters, or Chinese; empty for what else stands there."""


_UNITS: Final = {
    **dict.fromkeys(("gb", "gib", "g", "gig", "gigs", "gigabyte", "gigabytes"), "G"),
    **dict.fromkeys(("mb", "mib"), "M"),
    **dict.fromkeys(("tb", "tib", "t"), "T"),
    **dict.fromkeys(("k", "w", "万", "千"), "K"),
    **dict.fromkeys(("kb", "kib"), "KB"),
    **dict.fromkeys(("%", "％", "percent", "pct"), "%"),
    **dict.fromkeys(("bit", "bits"), "bit"),
    **dict.fromkeys(("token", "tokens"), "tokens"),
    **dict.fromkeys(("b", "billion", "billions", "亿"), "B"),
    "m": "m",
    "pb": "T",
}


def key_of(word: str) -> int:
    """What stands for a word in the features."""
    return crc32(word.encode())


def digits_of(number: str) -> str:
    """A number as it is written without its unit and the marks of thousands."""
    return number.rstrip(_UNIT_LETTERS).replace(",", "").replace("_", "")


_BEFORE_UNITS: Final = " -个多来余"
"""What stands between a number and its unit: a blank, a hyphen, Chinese for "and some"."""
_UNIT_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ%％万千亿" + _BEFORE_UNITS


@lru_cache(maxsize=20_000)
def _word(word: str) -> tuple[int, tuple[int, ...]]:
    low = word.lower()
    return key_of(stem(low)), lexicon().word(low).concepts


_BREAK: Final = key_of("\n")


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, in order."""
    names = _names(text)
    spelled = [(found.start(), found.end()) for found in _RE["spelled_han"].finditer(text)]
    out: list[Token] = []
    at = 0
    for start, end, kind in names:
        out += _between(text, at, start, spelled)
        out.append(Token(key_of(kind), (), start, end))
        at = max(at, end)
    return out + list(_between(text, at, len(text), spelled))


_LONGEST_NAME: Final = 16
"""Letters of a product's name before its number."""


def _between(text: str, start: int, end: int, spelled: list[tuple[int, int]]) -> Iterator[Token]:
    for found in _RE["token"].finditer(text, start, end):
        first, last = found.span()
        if found["number"]:
            unit = _UNITS.get((found["unit"] or "").strip(_BEFORE_UNITS).lower(), "n")
            unit = "share" if unit == "n" and found["number"].lstrip("0").startswith(".") else unit
            if _RE["bare_card"].fullmatch(found[0]):
                yield Token(key_of("<card>"), (), first, last)
            elif _RE["name_before"].search(text, max(start, first - _LONGEST_NAME), first):
                yield Token(key_of("<name>"), (), first, last)  # "XYZ9000"
            else:
                yield Token(key_of("#" + unit), (), first, last, found[0], unit)
        elif found["word"]:
            key, concepts = _word(found["word"])
            number = found["word"] if _RE["spelled"].fullmatch(found["word"]) else ""
            yield Token(key, concepts, first, last, number, "word" if number else "", word=found["word"].lower())
        elif found["han"]:
            yield from _han(text, first, last, spelled)
        else:
            pause = _RE["pause"].match(text, first) is not None
            yield Token(_BREAK if found[0] == "\n" else key_of(found[0]), (), first, last, pause=pause)


def _han(text: str, start: int, end: int, spelled: list[tuple[int, int]]) -> Iterator[Token]:
    at = start
    for first, last in spelled:
        if start <= first and last <= end and first >= at:
            yield from _han_words(text, at, first)
            yield Token(key_of("#word"), (), first, last, text[first:last], "word")
            at = last
    yield from _han_words(text, at, end)


def _han_words(text: str, start: int, end: int) -> Iterator[Token]:
    for item, length in lexicon().segments(text[start:end]):
        word = text[start : start + length]
        yield Token(key_of(word), item.concepts, start, start + length, word=word)
        start += length


def _names(text: str) -> list[tuple[int, int, str]]:
    """Places of the names of models, cards and formats, in order, without overlaps."""
    found = [
        (m.start, m.end, "<model>")
        for m in models.find_all(text)
        if m.named and not _RE["bare_size"].match(text, m.start, m.end)
    ]
    found += [(*_bare_name(text, m.start, m.end), "<card>") for m in gpus.find_all(text)]
    found += [(*m.span(), "<format>") for m in _RE["format"].finditer(text)]
    found += [(*m.span(), "<item>") for m in _RE["item"].finditer(text)]
    out: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(found, key=lambda one: (one[0], -one[1])):
        if start < end and (not out or start >= out[-1][1]):
            out.append((start, end, kind))
    return out


def _bare_name(text: str, start: int, end: int) -> tuple[int, int]:
    """The place of a card's name without the count and the size beside it."""
    for row in ("size_before", "count_before", "size_before"):
        if (found := _RE[row].match(text, start, end)) is not None:
            start = found.end()
    for row in ("size_behind", "count_behind"):
        if (found := _RE[row].search(text[start:end])) is not None:
            end = start + found.start()
    return start, end
