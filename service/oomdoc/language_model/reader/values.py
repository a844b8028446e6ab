"""The value of a claimed fact, parsed from its quote: a claim only chooses among what the quote holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake import read_text
from oomdoc.intake.numbers import NUMBER, SIZE, read_number, to_bytes
from oomdoc.language_model.reader.vocabulary import FactKey
from oomkb.catalog.gpus import find_all
from oomkb.units import to_gib

_SIZE: Final = re.compile(SIZE, re.IGNORECASE)
_NUMBER: Final = re.compile(NUMBER)
_DECIMAL: Final = re.compile(r"(?<![\w.])\d{0,4}\.?\d{1,6}(?:\s{0,2}%)?")
_DIGITS: Final = re.compile(r"\d{1,12}")
_BILLIONS: Final = re.compile(
    r"(?<![\d.])(\d{1,5}(?:\.\d{1,3})?)\s?(B(?![A-Za-z])|b(?![A-Za-z])|billion|M(?![A-Za-z])|million|亿)"
)
_PRODUCT: Final = re.compile(r"(\d{1,4})\D{1,24}?(\d{1,4})")
_VISIBLE: Final = re.compile(r"VISIBLE_DEVICES[=: \"']{1,4}(\d{1,3}(?:\s?,\s?\d{1,3}){0,127})")
_ONE: Final = re.compile(r"(?<![a-z])(?:an?|one|single|my|the)(?![a-z])|单|一", re.IGNORECASE)
_SEVERAL: Final = re.compile(r"\d\s?[x×*]|[x×*]\s?\d|(?:gpu|card|node|server|machine)s|\d\s?[张块卡台]", re.IGNORECASE)
"""Of a quote that names a card without any of these, one card is meant."""
_SAME: Final = 0.08
"""How far a claimed size may lie from the one in the quote: GB and GiB are often taken for each other."""
_LONGEST_NAME: Final = 160
_ALIKE: Final = frozenset(
    {("seq_len", "max_model_len"), ("max_model_len", "seq_len"), ("gpu_count", "tp"), ("tp", "gpu_count")}
)
"""(claimed, read) facts that one number may state."""


def value_of(key: FactKey, claimed: str, quote: str) -> Any:
    """The value, or ``None`` where the quote does not hold it, or where oomdoc's readers see another fact in it.

    :param quote: as it stands in the text.
    """
    claimed = claimed.strip()
    if not _speaks_of(key, quote):
        return None
    if key.kind in ("size", "fraction", "billions", "whole"):
        return _number(key, claimed, quote)
    if key.kind == "name":
        return _name(claimed, quote)
    plain = claimed.lower()
    if key.kind == "choice":
        return plain if plain in key.values else None
    if key.kind == "flag":
        return {"true": True, "false": False}.get(plain)
    named = [part.strip(" []\"'") for part in plain.split(",")]
    return sorted(set(named)) if named and set(named) <= set(key.values) else None


def _speaks_of(key: FactKey, quote: str) -> bool:
    """Whether one of the key's cues stands in the quote; a count of cards may stand beside a card's name too."""
    low = quote.lower()
    named = any(re.search(rf"(?<![a-z]){re.escape(cue)}", low) for cue in key.cues)
    return named or not key.cues or (key.name == "gpu_count" and bool(find_all(quote)))


def _name(claimed: str, quote: str) -> str | None:
    name = " ".join(claimed.split())
    whole = " ".join(quote.split())
    if not 1 < len(name) <= _LONGEST_NAME or not any(c.isalnum() for c in name):
        return None
    at = whole.lower().find(name.lower())
    return whole[at : at + len(name)] if at >= 0 else None


def _number(key: FactKey, claimed: str, quote: str) -> float | int | None:
    wanted = _claimed(key, claimed)
    if wanted is None:
        return None
    own = _own(quote)
    parsed = [own[key.name]] if key.name in own else []
    for found in (_held(key, quote), parsed):
        best = min(found, key=lambda n: abs(n - wanted), default=None)
        near = best is not None and abs(best - wanted) <= (_SAME * abs(wanted) + 0.02 if key.kind == "size" else 1e-6)
        if best is None or not near or best < 0:
            continue
        if key.name not in own and any(best == value for name, value in own.items() if (key.name, name) not in _ALIKE):
            return None
        return int(best) if key.kind == "whole" else round(float(best), 5)
    return None


def _claimed(key: FactKey, claimed: str) -> float | None:
    """What the model says it is; only used to choose."""
    size = _SIZE.fullmatch(claimed)
    if key.kind == "size" and size is not None:
        return to_gib(to_bytes(size[1], size[2]))
    try:
        text = claimed.replace(",", "")
        if key.kind == "billions":
            text = text.rstrip("bB ")
        elif key.kind == "fraction" and text.endswith("%"):
            return float(text[:-1]) / 100
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e15 and (key.kind != "whole" or value == int(value)) else None


def _held(key: FactKey, quote: str) -> list[float]:
    """Every number in the quote that may be meant."""
    if key.kind == "size":
        sizes = [to_gib(to_bytes(number, unit)) for number, unit in _SIZE.findall(quote)]
        return [*sizes, sum(sizes)] if len(sizes) > 1 and key.name == "other_process_gib" else sizes
    if key.kind == "billions":
        scale = {"m": 1e-3, "亿": 0.1}
        return [float(number) * scale.get(unit[:1].lower(), 1.0) for number, unit in _BILLIONS.findall(quote)]
    if key.kind == "fraction":
        texts = [found[0].replace(" ", "") for found in _DECIMAL.finditer(quote)]
        values = [float(t[:-1]) / 100 if t.endswith("%") else float(t) for t in texts if t not in (".", "%")]
        return [v for v in values if 0 < v <= 1]
    return list(_wholes(key, quote))


def _wholes(key: FactKey, quote: str) -> Iterator[float]:
    plain = quote.replace(",", "") if re.search(r"\d,\d{3}(?!\d)", quote) else quote
    for found in _DIGITS.finditer(plain):
        yield float(found[0])
    for found in _NUMBER.finditer(quote):
        try:
            yield read_number(found[0])
        except ValueError:
            continue
        if found[0][-1] in "kK":  # 64k is 65,536 to one person and 64,000 to another
            yield 1000 * read_number(found[0][:-1].strip())
    if key.name == "gpu_count":
        for first, second in _PRODUCT.findall(quote):
            yield float(first) * float(second)
        for listed in _VISIBLE.findall(quote):
            yield float(listed.count(",") + 1)
        if _ONE.search(quote) or (find_all(quote) and not _SEVERAL.search(quote)):
            yield 1.0


def _own(quote: str) -> dict[str, float]:
    """The numbers that oomdoc's own readers see in the quote, by what they are of."""
    facts = read_text(quote).facts.values()
    return {f.name: float(f.value) for f in facts if isinstance(f.value, int | float) and not isinstance(f.value, bool)}
