"""Numbers and their roles: one classifier (``bench/train_quantities.py``) for every wording.

A softmax over the roles of ``roles.toml``; the weights lie in ``weights.npz``, a row for each feature.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from oomdoc.intake.configs.key_words import meaning_of
from oomdoc.intake.linear import Softmax, softmax
from oomdoc.intake.numbers import read_number
from oomdoc.intake.quantities.features import features_of, meanings_of, numbers_of
from oomdoc.intake.quantities.tokens import digits_of, tokens_of
from oomkb.dataclass import dataclass
from oomkb.kept import compiled
from oomkb.tables import read_toml

WEIGHTS: Final = "weights.npz"
_MAX_CHARACTERS: Final = 6_000
"""Characters of a text that are read: work on untrusted text is bounded."""
_MAX_NUMBERS: Final = 120


@lru_cache(maxsize=1)
def roles() -> dict[str, str]:
    """Role to definition, in the order of the file."""
    return dict(read_toml(Path(__file__).with_name("roles.toml")))


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a text and what it is of."""

    role: str
    """A role of ``roles.toml``."""
    value: float
    """In GiB for memory, in billions for parameters, a share for percentages of a card, else as it is meant (``4k``:
    4096)."""
    start: int
    end: int
    written: str
    probability: float
    others: tuple[tuple[str, float], ...] = ()
    """Further roles that are not improbable, with their probabilities."""


def model() -> Softmax:
    """The shipped weights."""
    return softmax(Path(__file__).with_name(WEIGHTS))


_LEAST_NAMED: Final = 0.03
"""Probability from which a further role is named."""


@lru_cache(maxsize=8)
def quantities_in(text: str) -> tuple[Quantity, ...]:
    """The numbers of a text with their most probable roles, in order; what is of no role has ``other``."""
    tokens = tokens_of(text[:_MAX_CHARACTERS])
    places = numbers_of(tokens)[:_MAX_NUMBERS]
    if not places:
        return ()
    meanings, fitted = meanings_of(tokens), model()
    probable = fitted.probabilities([features_of(tokens, at, meanings) for at in places])
    out = []
    for at, row in zip(places, probable, strict=True):
        token = tokens[at]
        ranked = sorted(zip(fitted.names, row.tolist(), strict=True), key=lambda pair: -pair[1])
        others = tuple(pair for pair in ranked[1:6] if pair[1] >= _LEAST_NAMED)
        role, probability = ranked[0] if not is_of_other_key(text, token.start) else ("other", 1.0)
        value = value_of(token.number, token.unit)
        if value is not None:
            out.append(Quantity(role, value, token.start, token.end, token.number, probability, others))
    return tuple(out)


_KEY_BEFORE: Final = compiled(
    r"(?<![\w.])([A-Za-z][A-Za-z0-9]{0,24}(?:_[A-Za-z0-9]{1,24}){1,6})"
    r"(?: ?(?:=|:|：|->|→) ?| (?:to )?| ?[改设调换]?[成为到] ?)\Z"
)
_MAX_KEY: Final = 80
"""Characters of a key before its number."""
_LEAST_NONE: Final = 0.9
"""Probability from which a key is of no field."""


def is_of_other_key(text: str, start: int) -> bool:
    """Whether the number at a place is the value of a key that is surely of no field: ``export_size 改成 2``."""
    key = _KEY_BEFORE.search(text[max(0, start - _MAX_KEY) : start])
    if key is None or not text[start].isascii():
        return False
    field, probability = meaning_of(key[1])
    return field == "none" and probability >= _LEAST_NONE


_THOUSANDS: Final = {"w": 10_000, "万": 10_000, "千": 1000}
_GIB_OF: Final = {"G": 1.0, "M": 1 / 1024, "KB": 1 / 1024**2, "T": 1024.0}


def value_of(number: str, unit: str) -> float | None:
    """The value in the unit of its kind; ``None`` where it is no number (a release, a date)."""
    if unit == "word":
        try:
            return float(read_number(_HALVES.get(number.lower(), number)))
        except ValueError:
            return None
    try:
        value = float(digits_of(number))
    except ValueError:
        return None
    if unit in _GIB_OF:
        return value * _GIB_OF[unit]
    if unit == "K":
        scale = _THOUSANDS.get(number[-1].lower())
        return value * scale if scale is not None else float(read_number(f"{digits_of(number)}k"))
    if unit == "m":
        return value * 1024**2
    if unit == "%":
        return value / 100
    if number.endswith("亿"):
        return value / 10
    return value


_HALVES: Final = {"quad": "four", "pair": "two", "couple": "two", "second": "two", "third": "three"}
