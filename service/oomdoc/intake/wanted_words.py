"""What a question asks for by its words: a softmax over the quantities, fitted on marked questions.

``bench/train_wanted.py`` fits it on the texts of ``bench/data/quantities``, each of which says what its writer wanted.
Words of a sentence that asks count apart from the others; so do pairs of them, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from oomdoc.intake.linear import Softmax, softmax
from oomdoc.intake.quantities import quantities_in
from oomdoc.intake.quantities.features import chains, mix
from oomdoc.intake.quantities.fields import SURE
from oomdoc.intake.quantities.tokens import Token, key_of, tokens_of
from oomkb.kept import compiled

WEIGHTS: Final = "wanted.npz"
_MAX_CHARACTERS: Final = 1500
_LAST_SENTENCES: Final = 3
"""Sentences at the end of a text without a question mark that may ask."""
_STOP: Final = compiled(r"[!?。？！\n;；]|\.(?=\s|$)")
_ASKS, _SAYS, _NEXT, _NEAR, _THREE, _FIRST, _LAST, _ROLE = range(1, 9)
"""Kinds of features."""


def features_of(text: str) -> set[int]:
    """The features of a text: words, pairs and triples of its sentences, and of what its numbers are."""
    text = text[:_MAX_CHARACTERS]
    out: set[int] = set()
    for tokens, asks in _sentences(text):
        words = [(token.key, *(mix(concept, _ROLE) for concept in token.concepts)) for token in tokens]
        out.update(_of_sentence(words, asks))
    out.update(mix(key_of(q.role), _ROLE) for q in quantities_in(text) if q.probability >= SURE)
    return out


def _of_sentence(words: Sequence[tuple[int, ...]], asks: bool) -> Iterator[int]:
    """:param words: each with what it means."""
    kind = _ASKS if asks else _SAYS
    near, three = (mix(_NEAR, kind), _THREE) if asks else (None, None)
    yield from chains(words, one=kind, following=mix(_NEXT, kind), near=near, three=three)
    if asks and words:
        yield mix(words[0][0], _FIRST)
        yield from (mix(key, _LAST) for key in words[-1])


def _sentences(text: str) -> Iterator[tuple[list[Token], bool]]:
    """The tokens of each sentence, and whether it asks: by its mark, or where no mark is at the end of the text."""
    stops = [(found.start(), found[0] in "?？") for found in _STOP.finditer(text)] + [(len(text), False)]
    marked = any(asks for _, asks in stops)
    tokens, at = tokens_of(text), 0
    for n, (end, asks) in enumerate(stops):
        start = at
        while at < len(tokens) and tokens[at].start <= end:
            at += 1
        if at > start:
            yield tokens[start:at], asks if marked else n >= len(stops) - _LAST_SENTENCES


def model() -> Softmax:
    """The shipped weights."""
    return softmax(Path(__file__).with_name(WEIGHTS))


@lru_cache(maxsize=16)
def wanted_by_words(text: str) -> tuple[str, float]:
    """The quantity that is most probably asked for, ``fit`` for none, and its probability."""
    return model().best(features_of(text))
