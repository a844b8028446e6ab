"""How people say that a field of a job should have a value: the rows of ``phrases.toml``, checked as they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat.wording import filled, patterns, texts
from oomdoc.intake.numbers import NUMBER
from oomdoc.stated import DOTTED_FIELDS
from oomkb.dataclass import dataclass
from oomkb.errors import RecordError
from oomkb.memory.job import Job
from oomkb.tables import read_table

PAGED: Final = "paged"
"""An optimizer said only by that property: the paged form of the present one."""
_SHARE: Final = "gpu_memory_utilization"
_NOT_SET: Final = frozenset({"host_gib"})
"""Named in questions far more often than set; read by phrases of their own."""
_ROOM: Final = ("others_gib", "free_gib")
"""What others hold of the card, and what they leave: no fields of a job, but of what its card holds."""
_KEYS: Final = frozenset(
    {"field", "value", "says", "also", "names", "units", "lowest", "highest", "values", "after", "serving"}
)
_RE: Final = patterns("negation")
_LINKS, _ARROW = texts("links").values()
_PERCENT_FROM: Final = 5
"""A share from which it is meant in percent; 1.3 is none that a card has."""
_LINK: Final = rf"(?:[\s_=:：]{{0,3}}|(?<=\w)-(?=\d))(?:{_LINKS}[\s=]{{0,2}}){{0,5}}"
_FIRM_LINK: Final = rf"(?:\s?[=:：]\s?|\s?(?:{_LINKS}[\s=]{{0,2}}){{1,5}})"
_SAYS: Final = rf"(?:(?:{NUMBER}){_ARROW})?(?P<n>{NUMBER})"
_SHARE_SAYS: Final = rf"(?:[01]?\.\d{{1,3}}{_ARROW})?(?P<n>[01]?\.\d{{1,3}}|\d{{1,2}}\s?%|\d{{2}}(?=\s|$))"


def _fraction(number: float) -> float:
    return number / 100 if number >= _PERCENT_FROM else number


@dataclass(frozen=True, slots=True)
class Phrase:
    """``value`` is a constant, or ``None`` where group ``n`` (or ``n2``) is the number; ``also`` sets further fields."""

    field: str
    pattern: re.Pattern[str]
    value: Any = None
    convert: Callable[[float], Any] = int
    also: tuple[tuple[str, Any], ...] = ()
    serving: bool = False
    """Whether it is said of servers alone."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A field whose value is a number; ``pattern`` is how it is named or counted."""

    field: str
    pattern: re.Pattern[str]
    lowest: float
    highest: float
    convert: Callable[[float], Any]
    phrases: tuple[Phrase, ...]
    """``seq 8192``, ``seq_len=8192``, ``length from 8192 down to 4096``, ``长度降到 4096``, ``8192 tokens``."""


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _table() -> Mapping[str, Any]:
    """:raises RecordError: for a field that no job has, or a key that no row has."""
    found = read_table(Path(__file__).with_suffix(".toml"))
    known = {*Job.__dataclass_fields__, *DOTTED_FIELDS, _SHARE, *_ROOM}
    for part in ("choices", "first", "sizes", "numbers", "last", "names"):
        for row in found[part]:
            if row.get("field") not in known or not row.keys() <= _KEYS:
                raise RecordError(f"not a phrase: {row}", where=f"phrases.toml: {part}")
    return found


def _words(rows: list[dict[str, Any]], parts: Mapping[str, str]) -> Iterator[Phrase]:
    for row in rows:
        says = filled(row["says"], parts)
        also = tuple((name, _plain(value)) for name, value in row.get("also", {}).items())
        yield Phrase(
            row["field"],
            re.compile(rf"(?i)(?:{says})"),
            value=_plain(row["value"]),
            also=also,
            serving=row.get("serving", False),
        )


def _choices(row: Mapping[str, Any]) -> Iterator[Phrase]:
    """Each value beside the field's name, before it or (alone, where ``after``) behind it."""
    for value, spelt in row["values"].items():
        behind = rf"(?:{row['names']}){_LINK}(?:{spelt})(?![\w.])"
        before = "" if row.get("after") else rf"|(?<![\w.])(?:{spelt})[\s_-]?(?:的\s?)?(?:{row['names']})"
        yield Phrase(row["field"], re.compile(rf"(?i)(?:{behind}{before})"), value=value)


def _quantity(row: Mapping[str, Any]) -> Quantity:
    field, names, units = row["field"], row["names"], row.get("units", "")
    convert = _fraction if field == _SHARE else float if field.endswith("_gib") else int
    says = _SHARE_SAYS if field == _SHARE else _SAYS
    says_it = [rf"(?:{names}){_LINK}{says}"]
    if units:
        # "4 gpus 2 nodes": what stands before the unit counts, unless the name is linked to its number.
        counted = rf"(?<![A-Za-z\d.])(?<!prompt\s)(?<!input\s)(?<!length\s)(?:(?:{NUMBER}){_ARROW})?(?P<n>{NUMBER})\s?(?:{units})"
        says_it = [rf"(?:{names}){_FIRM_LINK}{says}", counted, *says_it]
    named = re.compile(rf"(?i)(?:{names})" + (rf"|(?:{units})" if units else ""))
    phrases = tuple(Phrase(field, re.compile(rf"(?i){p}"), convert=convert) for p in says_it)
    return Quantity(field, named, row.get("lowest", 1), row.get("highest", 4096), convert, phrases)


_TABLE: Final = _table()
ALIASES: Final = {name: field for field, names in _TABLE["aliases"].items() for name in names.split()}
QUANTITIES: Final = tuple(_quantity(row) for row in _TABLE["numbers"])
CHOICES: Final = tuple(phrase for row in _TABLE["choices"] for phrase in _choices(row))
WORDS: Final[Mapping[str, Mapping[str, re.Pattern[str]]]] = {
    row["field"]: {value: re.compile(rf"(?i){spelt}") for value, spelt in row["values"].items()}
    for row in _TABLE["choices"]
}
"""Field -> value -> how the value is written where the field need not be named again."""
PHRASES: Final[tuple[Phrase, ...]] = (
    *CHOICES,
    *_words(_TABLE["first"], _TABLE["parts"]),
    *(Phrase(row["field"], re.compile(rf"(?i){row['says']}"), convert=float) for row in _TABLE["sizes"]),
    *(phrase for quantity in QUANTITIES if quantity.field not in _NOT_SET for phrase in quantity.phrases),
    *_words(_TABLE["last"], _TABLE["parts"]),
)
"""In order of precedence."""
FIELD_NAMES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    *((q.field, q.pattern) for q in QUANTITIES if q.field not in _NOT_SET),
    *((row["field"], re.compile(rf"(?i){row['says']}")) for row in _TABLE["names"]),
)
"""How a turn names a field without giving it a value: "undo the seq change"."""


def fields_named(turn: str) -> tuple[str, ...]:
    """The fields that a turn names."""
    return tuple(dict.fromkeys(name for name, pattern in FIELD_NAMES if pattern.search(turn)))


OFF_VALUES: Final[Mapping[str, Any]] = MappingProxyType({name: _plain(value) for name, value in _TABLE["off"].items()})
"""What a field becomes when it is switched off."""


def is_off(turn: str, start: int, end: int) -> bool:
    """Whether what stands at ``start:end`` is said to be off; "why no lora?" is about having it."""
    before = _RE["off_before"].search(turn[max(0, start - 32) : start])
    within = _RE["off_within"].search(turn[start:end])
    taken_out = _RE["out_before"].search(turn[max(0, start - 16) : start]) and _RE["out_after"].match(
        turn[end : end + 16]
    )
    return bool((before and not before["why"]) or within or taken_out) or bool(
        _RE["off_after"].match(turn[end : end + 32])
    )


def is_replaced(turn: str, start: int) -> bool:
    """Whether what begins at ``start`` is what something else takes the place of."""
    return bool(_RE["replaced"].search(turn[max(0, start - 24) : start]))


def is_corrected(turn: str, start: int) -> bool:
    """Whether what begins at ``start`` is said to have been a mistake: "not an L40, an L4"."""
    return bool(_RE["corrected"].search(turn[max(0, start - 16) : start]))
