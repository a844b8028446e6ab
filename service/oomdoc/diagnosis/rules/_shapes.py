"""Shapes of tensors that a message, a trace or the person writes down: what a shape alone says of the tensor.

TensorFlow and XLA print the shape that found no room, people print ``x.shape``, and an einsum names its axes. Scores
have two long axes that are alike, logits one as long as a vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

from oomdoc.diagnosis.view import View

__all__ = ["einsum_of_pairs", "is_a_vocabulary", "is_map", "is_scores", "is_vocabulary_wide", "refused", "shapes_in"]

_SHAPE: Final = re.compile(
    r"(?:shape|size|tensor|(?:bf|f|u?int|s|u)\d{1,2}|float\d{0,2}|half)[ :=]{0,3}(?:torch\.size)?\(?"
    r"[\[(] ?(\d{1,9}(?: ?, ?\d{1,9}){1,6}) ?[\])]"
)
_EINSUM: Final = re.compile(r"['\"]([a-z]{2,6}) ?, ?([a-z]{2,6}) ?-> ?([a-z]{2,6})['\"]")
_MOST: Final = 24
_LONG: Final = 256
_KERNEL: Final = 11
_WORDS: Final = 30_000
_UNITS: Final = 8_192
"""A layer's widths that are as long as a small vocabulary stand beside no axis of the batch."""


def refused(view: View) -> tuple[int, ...]:
    """The shape that the failure's message says found no room, empty where it names none."""
    told = view.failure.signal.data.get("shape") if view.failure is not None else None
    return tuple(int(n) for n in told or ())


def shapes_in(view: View) -> Iterator[tuple[int, ...]]:
    """The first shapes of the text, at most 24; the one that was refused comes first."""
    if shape := refused(view):
        yield shape
    yield from _written(view.text)


@lru_cache(maxsize=16)
def _written(text: str) -> tuple[tuple[int, ...], ...]:
    found = islice(_SHAPE.finditer(text), _MOST)
    return tuple(tuple(int(n) for n in one[1].split(",")) for one in found)


def is_scores(shape: tuple[int, ...]) -> bool:
    """Whether it has three axes or more, and the last two are one length: ``[batch, heads, S, S]``."""
    return len(shape) >= 3 and shape[-1] == shape[-2] >= _LONG


def is_map(shape: tuple[int, ...]) -> bool:
    """Whether it is features over a picture or a recording, ``[batch, channels, H, W]``, and no kernel of a layer."""
    return len(shape) >= 4 and max(shape[:2]) > _KERNEL


def is_vocabulary_wide(shape: tuple[int, ...]) -> bool:
    """Whether it is rows of a vocabulary: ``[batch, S, V]`` or ``[tokens, V]``, and no table of embeddings."""
    if len(shape) < 2 or not _WORDS <= shape[-1] < 400_000:
        return False
    return len(shape) > 2 or shape[0] > _UNITS or shape[0] < 128


def is_a_vocabulary(size: int) -> bool:
    """Whether exactly so many words are in the vocabulary of a known model."""
    return size in _vocabularies()


@lru_cache(maxsize=1)
def _vocabularies() -> frozenset[int]:
    from oomkb.catalog.models import all_models

    sizes = (entry.config.get("vocab_size") for entry in all_models())
    return frozenset(size for size in sizes if isinstance(size, int) and size % 1000 and size & (size - 1))


def einsum_of_pairs(view: View) -> bool:
    """Whether a line multiplies two tensors so that an axis of each stays: one score for each pair."""
    for found in _EINSUM.finditer(view.text):
        left, right, out = (set(found[n]) for n in (1, 2, 3))
        if (left - right) & out and (right - left) & out and (left & right) - out:
            line = view.text[max(0, found.start() - 40) : found.end() + 60]
            if re.search(r"\bq\w{0,6}\b[^\n]{0,24}\bk\w{0,5}\b|score|attn|attention", line):
                return True
    return False
