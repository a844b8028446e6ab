"""The bilingual vocabulary: Chinese questions said in the English that the cases and the default model speak.

Two tables in ``data``: ``bilingual.tsv`` (Chinese -> English) and ``synonyms.tsv`` (how people type it -> the
usual word). The longest entry wins; what no entry knows is left out, and still counts for the
lexical side.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from oomkb.lazy import lazy
from oomkb.retrieval.text import MAX_CHARS, cjk_runs

_WORD: Final = lazy(r"[a-z0-9][a-z0-9'\-_]*")


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
