"""A sentence as the features that the classifier weighs: concepts, words, Chinese characters, and pairs of them.

A feature is a number of 32 bits: the checksum of a concept or a word, or of two of them in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomdoc.intake.statements.concepts import Item, items_of

MAX_ITEMS: Final = 60
"""Items of a sentence that are looked at."""
_REACH: Final = 4
"""How many items further on the second concept of a pair may stand."""
_MIX: Final = 0x9E3779B1
_MASK: Final = 0xFFFFFFFF


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
        out.add((before * _MIX + word) & _MASK)
        before = word
        for concept in concepts:
            out.add(concept)
            mixed = concept * 31 + 7
            for earlier in recent:
                for other in earlier:
                    out.add((other * _MIX + mixed) & _MASK)
        if paired:
            recent.append(concepts)
            if len(recent) > _REACH:
                del recent[0]
    return out
