"""What speaks for the role of a number: the words around it by their place, its unit and size, its clause, its text.

Each feature is a number of 32 bits. Words count by what they are and by what they mean (their concepts).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from oomdoc.intake.quantities.tokens import Token, digits_of, key_of
from oomdoc.intake.statements.concepts import MASK, MIX

_ORDERED: Final = 5
"""Tokens on each side whose place counts."""
_NEAR: Final = 8
"""Tokens on each side that count wherever they stand."""
_CLAUSE: Final = 24
"""Tokens of a clause on each side."""
_EDGE: Final = key_of("<edge>")
_MAX_OF_A_TEXT: Final = 200
"""Tokens of a text whose meanings count for each of its numbers."""
_SOLD: Final = frozenset(
    [6, 8, 10, 11, 12, 16, 20, 22, 24, 32, 40, 44, 45, 46, 48, 64, 80, 94, 96, 128, 141, 144, 180, 192]
)
"""Sizes of cards as they are sold, in GB."""


def mix(one: int, other: int) -> int:
    """One feature of two, in their order."""
    return ((one ^ (one >> 15)) * MIX + other) & MASK


def _half(one: int) -> int:
    """What :func:`mix` makes of the first: with many others in turn, it is made once."""
    return (one ^ (one >> 15)) * MIX


MAX_APART: Final = 3
"""Tokens from one word of a pair to the other."""


def chains(
    words: Sequence[tuple[int, ...]], *, one: int, following: int, near: int | None, three: int | None
) -> Iterator[int]:
    """Words, pairs of them up to :data:`MAX_APART` tokens apart, and triples, each of the kind that is given.

    :param words: each with what it means; ``near``, ``three``: ``None`` for none.
    """
    for at, here in enumerate(words):
        yield from (mix(key, one) for key in here)
        for apart, there in enumerate(words[at + 1 : at + 1 + MAX_APART], start=1):
            kind = following if apart == 1 else near
            if kind is not None:
                yield from (mix(mix(a, b), kind) for a in here for b in there)
        if three is not None and at + 2 < len(words):
            yield mix(mix(mix(here[-1], words[at + 1][-1]), words[at + 2][-1]), three)


@lru_cache(maxsize=200)
def _slot(name: str) -> int:
    return key_of(f"slot {name}")


@lru_cache(maxsize=10_000)
def _own(number: str, unit: str) -> tuple[int, ...]:
    """How a number is written: its unit, how large it is, whether it is round."""
    keys = [key_of(f"unit {unit}"), key_of(f"written {number.lower().replace(' ', '')}")]
    digits = digits_of(number)
    try:
        value = float(digits)
    except ValueError:
        return (*keys, key_of("no number"))
    keys.append(key_of(f"size {unit} {min(18, int(math.log2(value))) if value >= 1 else -1}"))
    if "." in digits:
        keys.append(key_of(f"decimals {min(3, len(digits.partition('.')[2]))}"))
    if value >= 2 and value == int(value) and int(value) & (int(value) - 1) == 0:
        keys.append(key_of("power of two"))
    if value >= 256 and value % 256 == 0:
        keys.append(key_of("of 256"))
    elif value >= 500 and value % 500 == 0:
        keys.append(key_of("of 500"))
    if value in _SOLD:
        keys.append(key_of("size of a card"))
    return tuple(keys)


def numbers_of(tokens: Sequence[Token]) -> list[int]:
    """The places of the numbers among the tokens."""
    return [at for at, token in enumerate(tokens) if token.number]


def meanings_of(tokens: Sequence[Token]) -> frozenset[int]:
    """The concepts of a text."""
    return frozenset(concept for token in tokens[:_MAX_OF_A_TEXT] for concept in token.concepts)


def features_of(tokens: Sequence[Token], at: int, meanings: frozenset[int]) -> set[int]:
    """The features of the number at a place.

    :param meanings: those of the whole text.
    """
    return set(_features(tokens, at, meanings))


def _features(tokens: Sequence[Token], at: int, meanings: frozenset[int]) -> Iterator[int]:
    token = tokens[at]
    unit = _slot(token.unit)
    yield from _own(token.number, token.unit)
    before = [tokens[n] for n in range(at - 1, max(-1, at - 1 - _CLAUSE), -1)]
    behind = tokens[at + 1 : at + 1 + _CLAUSE]
    if before and before[0].end == token.start and before[0].word:
        yield mix(_slot("glued"), before[0].key)
    if behind and behind[0].start == token.end and behind[0].word:
        yield mix(_slot("glued behind"), behind[0].key)
    for side, near in (("l", before), ("r", behind)):
        yield from _of_side(side, near, unit)
    keys = [_key(before, 2), _key(before, 1), _key(before, 0), _key(behind, 0), _key(behind, 1), _key(behind, 2)]
    for name, first, last in _RUNS:
        mixed = _slot(name)
        for key in keys[first:last]:
            mixed = ((mixed ^ (mixed >> 15)) * MIX + key) & MASK
        yield mixed
        yield mix(mixed, unit)
    left = next((t.key for t in before if t.word), _EDGE)
    right = next((t.key for t in behind if t.word), _EDGE)
    yield mix(mix(_slot("words"), left), right)
    yield mix(mix(_slot("word left"), left), unit)
    yield mix(mix(_slot("word right"), right), unit)
    yield from _of_clause(before, behind, unit)
    of_text = _half(mix(_slot("text"), unit))
    for concept in meanings:
        yield (of_text + concept) & MASK


_RUNS: Final = (
    ("ll", 1, 3),
    ("lll", 0, 3),
    ("rr", 3, 5),
    ("rrr", 3, 6),
    ("lr", 2, 4),
    ("llr", 1, 4),
    ("lrr", 2, 5),
    ("l21", 0, 2),
    ("r12", 4, 6),
)
"""Runs of neighbouring tokens: from and to which of the three before and the three behind."""


def _key(side: Sequence[Token], place: int) -> int:
    return side[place].key if place < len(side) else _EDGE


def _of_side(side: str, near: Sequence[Token], unit: int) -> Iterator[int]:
    means = _half(mix(_slot(f"{side} means"), unit))
    for place in range(_ORDERED):
        slot, key = _slot(f"{side}{place}"), _key(near, place)
        yield mix(slot, key)
        if place < 3:
            yield mix(mix(slot, unit), key)
        for concept in near[place].concepts if place < len(near) else ():
            yield mix(mix(slot, 1), concept)
            yield (means + concept) & MASK
    alone, with_unit = _half(_slot(f"{side} near")), _half(mix(_slot(f"{side} near unit"), unit))
    for one in near[:_NEAR]:
        yield (alone + one.key) & MASK
        yield (with_unit + one.key) & MASK


def _of_clause(before: Sequence[Token], behind: Sequence[Token], unit: int) -> Iterator[int]:
    alone, with_unit = _half(_slot("clause")), _half(mix(_slot("clause unit"), unit))
    means = _half(mix(_slot("clause means"), unit))
    for near in (before, behind):
        for one in near:
            if one.pause:
                break
            yield (alone + one.key) & MASK
            yield (with_unit + one.key) & MASK
            for concept in one.concepts:
                yield (means + concept) & MASK
