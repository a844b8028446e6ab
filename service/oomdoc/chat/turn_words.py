"""What a turn does and what its answer is to show, by its words: two softmaxes, fitted on labelled turns.

``bench/train_turns.py`` fits them on ``bench/data/turns.jsonl``. The patterns of :mod:`oomdoc.chat.grammar` find the
values; this says whether they are decided, asked about, ruled out or only mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from oomdoc.chat.phrases import FIELD_NAMES
from oomdoc.chat.wording import patterns
from oomdoc.intake.linear import Softmax, softmax
from oomdoc.intake.quantities.features import chains, mix
from oomdoc.intake.quantities.tokens import Token, key_of, tokens_of

ACT_WEIGHTS: Final = "turn_acts.npz"
VIEW_WEIGHTS: Final = "turn_views.npz"
ACTS: Final = (
    *("set", "whatif", "ask", "explain", "compare", "undo", "reject"),
    *("accept", "hold", "claim", "failed", "talk", "off"),
)
"""What a turn does: decides, supposes, asks about the run, asks how something works, sets runs side by side, takes
back, turns down, takes up, rules out, states a conclusion to be confirmed, tells what happened, small talk, none of it.
"""
VIEWS: Final = (
    *("config", "diff", "fits", "breakdown", "largest", "pick"),
    *("history", "sure", "speed", "why", "value", "other"),
)
"""What the answer to a turn is to show: the configuration, what of it changes, whether the run fits, what takes the
memory, how large something can be, advice, what was changed so far, how sure a figure is, a speed or a price, a reason,
the value of a setting, none of it.
"""
_MAX_CHARACTERS: Final = 400
_ONE, _NEXT, _NEAR, _THREE, _FIRST, _LAST, _SIZE, _END = range(101, 109)
"""Kinds of features."""
_ROWS: Final = {
    key_of(f"{section}.{name}"): pattern
    for section in ("questions", "undoing", "pleasantries", "topics", "negation")
    for name, pattern in patterns(section).items()
}
"""Expressions of a conversation's words, each of which is a feature where it is found."""
_SETTING: Final = key_of("<setting>")
_LENGTHS: Final = (2, 4, 7, 12, 20)
"""Tokens of a turn, as bounds of classes of length."""


def features_of(text: str) -> set[int]:
    """The features of a turn: words, pairs and triples, its first and last words, its length and its end."""
    text = text.strip()[:_MAX_CHARACTERS]
    words = _named(text, tokens_of(text))
    out = {mix(sum(len(words) > n for n in _LENGTHS), _SIZE), mix(key_of(text[-1:]), _END)}
    out.update(_of_words(words))
    out.update(row for row, pattern in _ROWS.items() if pattern.search(text))
    return out


def _named(text: str, tokens: list[Token]) -> list[tuple[int, ...]]:
    """Each token with what it means; what names a setting of a run means that too."""
    settings = [m.span() for _, pattern in FIELD_NAMES for m in pattern.finditer(text)]
    return [
        (
            token.key,
            *(mix(concept, _ONE) for concept in token.concepts),
            *((_SETTING,) if any(s < token.end and token.start < e for s, e in settings) else ()),
        )
        for token in tokens
    ]


def _of_words(words: list[tuple[int, ...]]) -> Iterator[int]:
    yield from chains(words, one=_ONE, following=_NEXT, near=_NEAR, three=_THREE)
    for kind, ends in ((_FIRST, words[:2]), (_LAST, words[-2:])):
        yield from (mix(mix(key, place), kind) for place, one in enumerate(ends) for key in one)


def model(weights: str) -> Softmax:
    """The shipped weights."""
    return softmax(Path(__file__).with_name(weights))


@lru_cache(maxsize=64)
def acts_of(text: str) -> Mapping[str, float]:
    """The probability of each of :data:`ACTS`."""
    return _odds(ACT_WEIGHTS, text)


@lru_cache(maxsize=64)
def views_of(text: str) -> Mapping[str, float]:
    """The probability of each of :data:`VIEWS`."""
    return _odds(VIEW_WEIGHTS, text)


def _odds(weights: str, text: str) -> Mapping[str, float]:
    found = model(weights)
    (row,) = found.probabilities([features_of(text)])
    return MappingProxyType(dict(zip(found.names, row.tolist(), strict=True)))
