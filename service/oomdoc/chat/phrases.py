"""What a turn says of settings: the values that intake reads, and the words of ``phrases.toml`` for what it does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from oomdoc.chat.wording import filled, patterns
from oomdoc.intake.alternatives import values_in
from oomdoc.intake.numbers import as_share, read_number
from oomdoc.intake.sieve import Expression
from oomdoc.intake.worded import ROWS
from oomdoc.stated import DOTTED_FIELDS
from oomkb.dataclass import dataclass
from oomkb.errors import RecordError
from oomkb.memory.job import Job
from oomkb.tables import read_table

PAGED: Final = "paged"
"""An optimizer said only by that property: the paged form of the present one."""
SHARE: Final = "gpu_memory_utilization"
"""The share of an engine, whose field depends on the run: a rollout's or a server's."""
_ROOM: Final = ("others_gib", "free_gib")
"""What others hold of the card, and what they leave: no fields of a job, but of what its card holds."""
_READ_ELSEWHERE: Final = frozenset({"capacity_gib", "model", "gpu"})
_RE: Final = patterns("negation")
_SIXTEEN: Final = {"fp16": "fp16", "float16": "fp16", "f16": "fp16"}


class Said(NamedTuple):
    """A value of a field, where it stands in a turn, and further fields that it sets."""

    start: int
    end: int
    field: str
    value: Any
    also: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class _Words:
    field: str
    pattern: Expression | re.Pattern[str]
    value: Any = None
    also: tuple[tuple[str, Any], ...] = ()
    serving: bool = False
    """Whether it is said of servers alone."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A field whose value is a number, how it is named, and between what limits a bare number is one."""

    field: str
    pattern: Expression | re.Pattern[str]
    lowest: float
    highest: float
    convert: Callable[[float], Any]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _table() -> Mapping[str, Any]:
    """:raises RecordError: for a field that no job has."""
    found = read_table(Path(__file__).with_suffix(".toml"))
    known = {*Job.__dataclass_fields__, *DOTTED_FIELDS, *_ROOM}
    named = [row["field"] for part in ("first", "last", "sizes") for row in found[part]]
    if unknown := {*named, *found["limits"], *found["off"]} - known:
        raise RecordError(f"no fields of a job: {sorted(unknown)}", where="phrases.toml")
    return found


def _words(part: str) -> tuple[_Words, ...]:
    rows = []
    for row in _TABLE[part]:
        pattern = re.compile(f"(?i)(?:{filled(row['says'], _TABLE['parts'])})")
        also = tuple((name, _plain(value)) for name, value in row.get("also", {}).items())
        rows.append(_Words(row["field"], pattern, _plain(row.get("value")), also, row.get("serving", False)))
    return tuple(rows)


def _quantity(field: str, lowest: float, highest: float) -> Quantity:
    share = field.endswith(SHARE)
    convert = as_share if share else float if field.endswith("_gib") else int
    pattern = ROWS[f"name.{field}"]
    return Quantity(SHARE if share else field, pattern, lowest, highest, convert)


_TABLE: Final = _table()
_FIRST, _LAST, _SIZES = _words("first"), _words("last"), _words("sizes")
ALIASES: Final[Mapping[str, str]] = {
    name: field for field, names in _TABLE["aliases"].items() for name in names.split()
}
QUANTITIES: Final = tuple(_quantity(field, *limits) for field, limits in _TABLE["limits"].items())
ALONE: Final[Mapping[str, Mapping[str, re.Pattern[str]]]] = {
    field: {value: re.compile(f"(?i){spelt}") for value, spelt in values.items()}
    for field, values in _TABLE["alone"].items()
}
"""Field -> value -> how the value is written where the field need not be named again."""
OFF_VALUES: Final[Mapping[str, Any]] = MappingProxyType({name: _plain(value) for name, value in _TABLE["off"].items()})
"""What a field becomes when it is switched off."""
FIELD_NAMES: Final = tuple(
    (SHARE if name.endswith(SHARE) else name.partition(":")[0], ROWS[f"name.{name}"]) for name in ROWS.group("name")
)
"""How a turn names a field without giving it a value: "undo the seq change"."""


def fields_named(turn: str) -> tuple[str, ...]:
    """The fields that a turn names."""
    return tuple(dict.fromkeys(name for name, pattern in FIELD_NAMES if pattern.search(turn)))


def said_in(turn: str, taken: list[tuple[int, int]], *, serving: bool) -> Iterator[Said]:
    """Every value that a turn names, those that count first; what was ``taken`` by one is not read by another."""
    for one in (
        *_worded(turn, _FIRST, serving=serving),
        *_sizes(turn),
        *_read(turn),
        *_worded(turn, _LAST, serving=serving),
    ):
        if not any(start < one.end and one.start < end for start, end in taken):
            taken.append((one.start, one.end))
            yield one


def _worded(turn: str, rows: tuple[_Words, ...], *, serving: bool) -> Iterator[Said]:
    for row in rows:
        if serving or not row.serving:
            for match in row.pattern.finditer(turn):
                yield Said(*match.span(), row.field, row.value, row.also)


def _sizes(turn: str) -> Iterator[Said]:
    for row in _SIZES:
        for match in row.pattern.finditer(turn):
            number = next(size for size in match.groupdict().values() if size)
            yield Said(*match.span(), row.field, read_number(number))


def _read(turn: str) -> Iterator[Said]:
    """The values that intake reads; sixteen bits of a run are those of what is computed, and of stored weights."""
    for name, mentions in values_in(turn, turn=True).items():
        if name in _READ_ELSEWHERE:
            continue
        field = SHARE if name.endswith(SHARE) else name
        for start, end, side in mentions:
            value = side.fields[name]
            also: tuple[tuple[str, Any], ...] = ()
            if (field, value) == ("quant", "none"):
                written = turn[start:end].lower()
                yield Said(start, end, "param_dtype", _SIXTEEN.get(written, "bf16"))
                continue
            elif (field, value) == ("serving.kv_dtype", "bf16") and turn[start:end].lower() in _SIXTEEN:
                value = "fp16"
            elif (field, value) == ("method", "qlora"):
                also = (("quant", "nf4"),)
            elif (field, value, turn[start:end].lower()) == ("quant", "awq-int4", "int4"):
                value = "nf4"
            yield Said(start, end, field, value, also)


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


def is_put_off(turn: str, end: int) -> bool:
    """Whether what ends at ``end`` is left for later: "zero3 can wait", "zero3 先不换"."""
    return _RE["put_off"].match(turn[end : end + 32]) is not None


def is_replaced(turn: str, start: int) -> bool:
    """Whether what begins at ``start`` is what something else takes the place of."""
    return bool(_RE["replaced"].search(turn[max(0, start - 24) : start]))


def is_corrected(turn: str, start: int) -> bool:
    """Whether what begins at ``start`` is said to have been a mistake: "not an L40, an L4"."""
    return bool(_RE["corrected"].search(turn[max(0, start - 16) : start]))
