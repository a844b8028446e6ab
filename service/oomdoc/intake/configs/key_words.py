"""What a configuration key means by the words it is made of: one classifier for spellings that no table has.

A softmax over fields of the job (and ``none``), fitted on every key of every framework's record and on labelled keys of
projects with scripts of their own (``bench/train_config_keys.py``). Features are the words of the key, in their order,
parts of these words, and the sections before it; the value only has to be one that the field can have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

from oomdoc.intake.linear import Softmax, softmax

WEIGHTS: Final = "key_words.npz"
NO_FIELD: Final = "none"
_WORDS: Final = re.compile(r"[A-Z]{2,}(?=[A-Z][a-z]|[^A-Za-z]|\Z)|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_MAX_CHARS: Final = 120
_MAX_SECTIONS: Final = 3
_GRAM_LENGTHS: Final = (3, 4, 5)


def words_of(name: str) -> list[str]:
    """``perDeviceBS_size`` is ``per``, ``device``, ``bs``, ``size``."""
    return [word.lower() for word in _WORDS.findall(name)]


def _features(key: str) -> Iterator[str]:
    *sections, last = re.split(r"[.\[\]:]+", key[-_MAX_CHARS:])
    words = words_of(last)
    yield from (f"word {word}" for word in words)
    yield f"whole {' '.join(words)}"
    yield f"first {words[0] if words else ''}"
    yield f"last {words[-1] if words else ''}"
    yield from (f"pair {a} {b}" for a, b in pairwise(words))
    yield from (f"both {a} {b}" for a, b in combinations(sorted(set(words)), 2))
    joined = f"^{'_'.join(words)}$"
    for length in _GRAM_LENGTHS:
        yield from (f"part {joined[at : at + length]}" for at in range(len(joined) - length + 1))
    for section in sections[-_MAX_SECTIONS:]:
        yield from (f"section {word}" for word in words_of(section))


def features_of(key: str) -> frozenset[int]:
    """The features of a key with its sections (``trainer.micro_bsz``), numbers of 32 bits."""
    return frozenset(crc32(feature.encode()) for feature in _features(key))


def model() -> Softmax:
    """The shipped weights."""
    return softmax(Path(__file__).with_name(WEIGHTS))


@lru_cache(maxsize=4096)
def meaning_of(key: str) -> tuple[str, float]:
    """The field that a key most probably says, or ``none``; and how probable that is, 0..1."""
    return model().best(features_of(key))
