"""Text to search words: identifiers whole and in parts, English stems, Chinese in pairs of characters.

What every allocator message says, whatever the cause, says nothing about the cause. PyTorch (since 1.x,
``c10/cuda/CUDACachingAllocator.cpp``) ends each out-of-memory message with advice about fragmentation and with the
memory of the processes on the card. Left in, every pasted log would sound like fragmentation and like somebody else's
process. The parts stay where their figures make them a symptom: more cached than was asked for, or a process that
holds more than this one's tensors.

The bilingual vocabulary: Chinese questions said in the English that the cases and the default model speak. Two tables
in ``data``: ``bilingual.tsv`` (Chinese -> English) and ``synonyms.tsv`` (how people type it -> the usual word). The
longest entry wins; what no entry knows is left out, and still counts for the lexical side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from oomkb.kept import lazy

_SIZE: Final = r"(\d{1,9}(?:\.\d{1,4})?) ?([KMG])i?B"
_ADVICE: Final = lazy(
    r"If reserved\s(?:but unallocated )?memory\sis\s(?:large|>> allocated\smemory),?\s?try\s{1,4}setting\s.{0,90}"
    r"(?:fragmentation\.?|\w_CONF=\S{1,60})(?:\s{1,3}See documentation for Memory[^\n]{0,120})?"
    r"|See documentation for Memory Management[^\n]{0,120}",
    re.IGNORECASE | re.DOTALL,
)
_OWN: Final = lazy(rf"Including non-PyTorch memory, this process has {_SIZE} memory in use\.?", re.IGNORECASE)
_PROCESS: Final = lazy(rf"Process \d{{1,9}} has {_SIZE} memory in use\.?", re.IGNORECASE)
_CACHED: Final = lazy(rf"and {_SIZE} is reserved by PyTorch but unallocated\.?", re.IGNORECASE)
_RESERVED: Final = lazy(rf"; {_SIZE} reserved in total by PyTorch\)?", re.IGNORECASE)
_TRIED: Final = lazy(rf"[Tt]ried to allocate {_SIZE}", re.IGNORECASE)
_TENSORS: Final = lazy(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated", re.IGNORECASE)
_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30}
_WORD: Final = lazy(r"[a-z0-9][a-z0-9'\-_]*")
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


def telling(text: str) -> str:
    """The text without the parts of allocator messages that are always there."""
    text = text[:MAX_CHARS]
    if "llocat" not in text:
        return text
    tried, tensors = _first(_TRIED, text), _first(_TENSORS, text)
    text = _OWN.sub(" ", _ADVICE.sub(" ", text))
    text = _CACHED.sub(lambda m: " " if tried and _bytes(m.groups()) <= tried else m.group(), text)
    text = _RESERVED.sub(lambda m: " " if tried and _bytes(m.groups()) <= tried + tensors else m.group(), text)
    return _PROCESS.sub(lambda m: " " if tensors and _bytes(m.groups()) < 2 * tensors else m.group(), text)


def _first(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.search(text)
    return _bytes(tuple(g for g in match.groups() if g is not None)) if match else 0.0


def _bytes(size: tuple[str, ...]) -> float:
    return float(size[0]) * _UNITS[size[1].upper()]


def _table(name: str) -> dict[str, str]:
    text = (files("oomkb.retrieval") / "data" / name).read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if line and not line.startswith("#"))
    return {row[0].lower(): row[1].strip() for row in rows}


@cache
def bilingual() -> dict[str, str]:
    """Chinese -> English."""
    return _table("bilingual.tsv")


@cache
def _synonyms() -> dict[str, str]:
    return _table("synonyms.tsv")


@cache
def _longest_phrases() -> dict[str, int]:
    """First word -> words of the longest phrase that begins with it: few words of a log begin any."""
    longest: dict[str, int] = {}
    for phrase in map(str.split, _synonyms()):
        longest[phrase[0]] = max(longest.get(phrase[0], 0), len(phrase))
    return longest


@cache
def _longest_chinese() -> int:
    return max(map(len, bilingual()))


def gloss(text: str) -> str:
    """The text with its Chinese replaced by English, word by word; English text comes back as it is."""
    text = text[:MAX_CHARS]
    pieces, end = [], 0
    for run in cjk_runs(text):
        pieces += [text[end : run.start()], " ", " ".join(_translated(run.group())), " "]
        end = run.end()
    pieces.append(text[end:])
    return re.sub(r"[ \t]+", " ", "".join(pieces)).strip()


def _translated(run: str) -> list[str]:
    words, at = [], 0
    while at < len(run):
        for length in range(min(_longest_chinese(), len(run) - at), 0, -1):
            english = bilingual().get(run[at : at + length])
            if english is not None:
                words.append(english)
                at += length
                break
        else:
            at += 1
    return words


def widened(text: str) -> str:
    """The usual words for the slang and abbreviations in the text: ``bs`` -> batch size. Empty where there is none."""
    words = _WORD.findall(text[:MAX_CHARS].lower())
    found, at, phrases, longest = [], 0, _synonyms(), _longest_phrases()
    while at < len(words):
        step = 1
        for length in range(longest.get(words[at], 0), 0, -1):
            usual = phrases.get(" ".join(words[at : at + length]))
            if usual is not None:
                found.append(usual)
                step = length
                break
        at += step
    return " ".join(found)


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
