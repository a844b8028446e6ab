"""Sentences as sequences of words and concepts.

``concepts.toml`` lists English and Chinese words that mean the same when people speak of memory ("oom", "blew up",
"炸了"). Numbers become what they count: ``#`` any, ``#1`` one, ``#0.9`` a high share, ``#gb`` a size, ``#b`` billions
of parameters, ``#ver`` a release. Identifiers are split: ``per_device_train_batch_size`` reads as its words.

What the classifiers weigh are features: concepts, words, Chinese characters, and pairs of them, each a number of 32
bits, the checksum of a concept or a word, or of two of them in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from oomkb.kept import compiled
from oomkb.tables import read_toml

_TOKEN: Final = compiled(
    r"910b\d?|v\d{1,3}(?:\.\d{1,4}){1,3}|[a-z]{1,40}(?:'[a-z]{1,3})?\d{0,4}[a-z]{0,3}"
    r"|\d{1,12}(?:[.,]\d{1,9}){0,3} ?(?:[gmk]i?b?\b|gigs\b|%|bit\b|b\b|x\b|th\b|nd\b|st\b)?"
    r"|#[a-z0-9%]{0,4}|[一-鿿]{1,400}|[?？]"
)
_CARD: Final = compiled(r"(?:10|20|30|40|50)[5-9]0\Z")
_HIGH_SHARE: Final = 0.88
"""Shares of a card from here on are high ones for an engine, whose default is 0.9."""
_SIZES: Final = ("g", "gb", "gib", "gigs", "m", "mb", "mib")
_ORDINALS: Final = ("bit", "st", "nd", "th")


class Item(NamedTuple):
    """One word of a sentence: its key, and the keys of what it means (nothing, one concept or several)."""

    word: int
    concepts: tuple[int, ...]
    han: bool
    paired: bool
    """Whether it takes a place in the sequence that pairs of concepts are formed from."""


class Lexicon:
    """The words of a table of concepts: ``{concept: {"en": "a|b", "zh": "甲|乙"}}``.

    :raises ValueError: for a Chinese word that holds other characters, or an entry without a word.
    """

    def __init__(self, table: Mapping[str, Mapping[str, str]]) -> None:
        words: dict[str, list[str]] = {}
        phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        han: dict[str, list[str]] = {}
        for concept, row in table.items():
            for entry in row["en"].split("|"):
                parts = tuple(entry.split()) if "*" in entry else tuple(_normal(t) for t in _TOKEN.findall(entry))
                if not parts:
                    raise ValueError(f"concepts.toml: {concept}: {entry!r} holds no word")
                if len(parts) > 1:
                    phrases.setdefault(parts[0].rstrip("*")[:3], []).append((parts, concept))
                else:
                    words.setdefault(parts[0], []).append(concept)
            for entry in filter(None, row["zh"].split("|")):
                if not all("一" <= c <= "鿿" for c in entry):
                    raise ValueError(f"concepts.toml: {concept}: {entry!r} is not Chinese alone")
                han.setdefault(entry, []).append(concept)
        self._words = words
        self._phrases = {word: sorted(found, key=lambda p: -len(p[0])) for word, found in phrases.items()}
        self._han = {word: _item(word, concepts, han=True) for word, concepts in han.items()}
        self._longest = max(map(len, self._han), default=1)
        self.word = lru_cache(maxsize=20_000)(self._word)
        self._beginning = lru_cache(maxsize=20_000)(self._phrases_of)
        self._character = lru_cache(maxsize=4_000)(lambda character: _item(character, (), han=True))
        self._phrase_item = lru_cache(maxsize=2_000)(_item)

    def _word(self, word: str) -> Item:
        """One English word; of the entries with "*" the longest."""
        found = self._words.get(word)
        for size in range(min(len(word), 14), 1, -1):
            if found is not None:
                break
            found = self._words.get(word[:size] + "*")
        return _item(word, tuple(found or ()))

    def _phrases_of(self, token: str) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The phrases that begin with a word, longest first."""
        return tuple(entry for entry in self._phrases.get(token[:3], ()) if _equals(entry[0][0], token))

    def phrase(self, tokens: Sequence[str], at: int) -> tuple[int, Item | None]:
        """How many words from ``at`` on make the longest known phrase, and the phrase."""
        best = 0
        concepts: list[str] = []
        for parts, concept in self._beginning(tokens[at]):
            size = len(parts)
            if size < best:
                break
            if at + size <= len(tokens) and all(map(_equals, parts, tokens[at : at + size])):
                best = size
                concepts.append(concept)
        return best, self._phrase_item(" ".join(tokens[at : at + best]), tuple(concepts)) if best else None

    def segments(self, run: str) -> Iterator[tuple[Item, int]]:
        """The words of a run of Chinese, each with its length; what no entry knows comes one character at a time."""
        at = 0
        while at < len(run):
            for size in range(min(self._longest, len(run) - at), 0, -1):
                found = self._han.get(run[at : at + size])
                if found is not None:
                    yield found, size
                    at += size
                    break
            else:
                yield self._character(run[at]), 1
                at += 1


def _item(word: str, concepts: Sequence[str], *, han: bool = False) -> Item:
    named = word[0] == "#" or word in "?？"
    meant = tuple(map(_key, dict.fromkeys(concepts))) or ((crc32(f"c{word}".encode()),) if named else ())
    return Item(crc32(f"w{stem(word)}".encode()), meant, han, bool(meant) or not han)


def _key(concept: str) -> int:
    return crc32(f"c{concept}".encode())


def concepts_of(*names: str) -> frozenset[int]:
    """The features of concepts, by their names in ``concepts.toml``."""
    return frozenset(map(_key, names))


def stem(word: str) -> str:
    """A word without its ending; a phrase stays as it is."""
    if len(word) > 4 and " " not in word:
        for end in ("ing", "ed", "es", "s"):
            if word.endswith(end):
                return word[: -len(end)]
    return word


def _equals(part: str, token: str) -> bool:
    return part == token or (part[-1] == "*" and token.startswith(part[:-1]))


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """The shipped one."""
    return Lexicon(read_toml(Path(__file__).with_name("concepts.toml")))


@lru_cache(maxsize=20_000)
def _normal(token: str) -> str:
    """A token as the lexicon writes it."""
    if token[0] == "v" and token[1:2].isdigit() and "." in token:
        return "#ver"
    if not token[0].isdigit() or token.startswith("910b"):
        return token
    number = token.rstrip("abcdefghijklmnopqrstuvwxyz% ")
    unit = token[len(number) :].strip()
    if unit in _ORDINALS:
        return number + unit
    if unit in _SIZES:
        return "#0gb" if number == "0" else "#gb"
    if unit:
        return "#100%" if number == "100" and unit == "%" else "#" + unit[0]
    if number.count(".") > 1:
        return "#ver"
    if _CARD.match(number):
        return number
    if number.startswith("0."):
        return "#0.9" if float(number.replace(",", "")) >= _HIGH_SHARE else "#0.5"
    return "#" + number if number in ("0", "1") else "#"


def items_of(sentence: str) -> list[Item]:
    """The words and concepts of a sentence, in order."""
    known = lexicon()
    tokens = [_normal(token) for token in _TOKEN.findall(sentence.lower().replace("#", " ").replace("’", "'"))]
    out: list[Item] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if "一" <= token[0] <= "鿿":
            out += [item for item, _ in known.segments(token)]
            at += 1
            continue
        size, item = known.phrase(tokens, at)
        out.append(item if item is not None else known.word(token))
        at += max(size, 1)
    return out


MAX_ITEMS: Final = 60
"""Items of a sentence that are looked at."""
_REACH: Final = 4
"""How many items further on the second concept of a pair may stand."""
MIX: Final = 0x9E3779B1
MASK: Final = 0xFFFFFFFF
"""By which two features become one of 32 bits."""


def features_of(sentence: str) -> set[int]:
    """What the sentence holds."""
    return features_of_items(items_of(sentence))


def features_of_items(items: Sequence[Item], *, most: int = MAX_ITEMS) -> set[int]:
    """What so many words hold: concepts, words, pairs of concepts within reach, pairs of neighbouring words."""
    items = items[:most]
    out: set[int] = set()
    before = 0
    recent: list[tuple[int, ...]] = []
    for word, concepts, _, paired in items:
        out.add(word)
        out.add((before * MIX + word) & MASK)
        before = word
        for concept in concepts:
            out.add(concept)
            mixed = concept * 31 + 7
            for earlier in recent:
                for other in earlier:
                    out.add((other * MIX + mixed) & MASK)
        if paired:
            recent.append(concepts)
            if len(recent) > _REACH:
                del recent[0]
    return out
