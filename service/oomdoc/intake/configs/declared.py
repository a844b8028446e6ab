"""Tables of the frameworks that are one declarative record (:mod:`oomkb.frameworks.declared`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from oomdoc.intake.configs import codecs
from oomdoc.intake.configs.table import Codec, Group, Key, Reading, Table, View, norm
from oomdoc.intake.configs.values import flag, whole
from oomkb.frameworks.declared import KeyRow, Record, TotalBatch, WordRow, records

__all__ = ["declared_tables"]

_DEGREE: Final = re.compile(r"([a-z])([0-9]{1,5})")
_RANGE: Final = re.compile(r"list\(range\(([0-9]{1,6}),\s?([0-9]{1,6})\)\)\Z")
_ENGINES: Final = ("vllm", "sglang")


def _degree(letter: str) -> Codec:
    """The size of one dimension in AReaL's ``megatron:d4p1t2``; a dimension that is left out is one."""

    def read(value: Any) -> int | None:
        if not isinstance(value, str) or ":" not in value or len(value) > 100:
            return None
        return int(dict(_DEGREE.findall(value.partition(":")[2])).get(letter, 1))

    def write(value: Any, old: Any) -> Any:
        head, colon, tail = str(old or "").partition(":")
        parts = dict(_DEGREE.findall(tail)) | {letter: str(value)}
        return f"{head}{colon}" + "".join(f"{name}{size}" for name, size in parts.items())

    return Codec(read, write)


def _engine(value: Any) -> str | None:
    name = str(value).partition(":")[0].lower()
    return next((engine for engine in _ENGINES if name.startswith(engine)), None)


def _ranks(value: Any) -> int | None:
    """How many GPUs ``list(range(0,8))`` is."""
    found = _RANGE.match(value.strip()) if isinstance(value, str) else None
    return int(found[2]) - int(found[1]) if found and int(found[2]) > int(found[1]) else None


_CODECS: Final[Mapping[str, Codec]] = {
    **{
        name: getattr(codecs, name.upper())
        for name in ("int", "count", "number", "fraction", "text", "model", "flag", "dtype", "attention", "optimizer")
    },
    "not": codecs.NOT,
    "targets": codecs.TARGETS,
    "engine": Codec(_engine, lambda value, _old: value),
    "ranks": Codec(_ranks, lambda value, _old: f"list(range(0,{value}))"),
    **{f"degree_{letter}": _degree(letter) for letter in "tpdce"},
}


def declared_tables(coded: Sequence[Table]) -> tuple[Table, ...]:
    """A table for each record.

    :param coded: the tables written as code, among which the records' bases are.
    """
    made: dict[str, Table] = {table.name: table for table in coded}
    return tuple(_table(record, made) for record in records())


def _table(record: Record, made: Mapping[str, Table]) -> Table:
    base = made[record.base] if record.base else None
    keys = tuple(_key(row) for row in record.keys if not row.beside)
    groups = tuple(_groups(record))
    return Table(
        name=record.name,
        keys=keys,
        groups=groups,
        bases=(base,) if base is not None else (),
        neutral=frozenset(norm(n) for n in record.known if not n.endswith(".*")) | record.marks | record.hints,
        sections=tuple(norm(n)[:-1] for n in record.known if n.endswith(".*")),
        commands=record.programs,
        marks=record.marks,
        hints=record.hints | (base.hints if base is not None else frozenset()),
        dashes=record.dashes,
        prefixes=record.prefixes,
        ignores=record.ignores,
        exact=base is None,
        adds=record.adds | ((base.adds or frozenset()) if base is not None else frozenset()),
    )


def _key(row: KeyRow) -> Key:
    return Key(row.field, (row.key,), _CODECS[row.codec])


def _groups(record: Record) -> Iterator[Group]:
    for row in record.keys:
        if row.beside:
            yield _beside(row)
    for word in record.words:
        if not word.part:
            yield _word(word)
    parts = [word for word in record.words if word.part]
    for name in dict.fromkeys(word.field for word in parts):
        yield _parts(name, [word for word in parts if word.field == name])
    if record.total_batch is not None:
        yield _accumulation(record.total_batch)


def _word(row: WordRow) -> Group:
    """A key whose value stands for a word of the job."""
    name = norm(row.key)
    read, write = _way(row)

    def read_view(view: View) -> Iterator[Reading]:
        entry = view.get(name)
        if entry is not None and (value := read(entry.value)) is not None:
            yield row.field, value, entry

    def write_view(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        entry = view.get(name)
        written = write(value, entry.value if entry is not None else None)
        return None if written is None else {row.key: written}

    return Group((row.field,), (row.key,), read_view, write_view)


def _way(row: WordRow) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    if row.codec:
        codec = _CODECS[row.codec]
        return codec.read, lambda value, old: codec.write(value, old) if old is not None else None
    if row.above_zero:
        return lambda value: row.above_zero if (whole(value) or 0) > 0 else None, lambda _value, _old: None
    if row.given:
        return lambda value: row.given if value not in (None, False) else None, lambda _value, _old: None
    table = {str(spelling).lower(): word for spelling, word in row.values.items()}

    def read(value: Any) -> Any:
        said = flag(value) if not table.keys().isdisjoint({"true", "false"}) else None
        return table.get(str(value if said is None else said).strip().lower())

    def write(value: Any, old: Any) -> Any:
        spelling = next((s for s, word in row.values.items() if _equal(word, value)), None)
        if spelling in ("true", "false"):
            return codecs.FLAG.write(spelling == "true", old)
        return int(spelling) if spelling is not None and spelling.isdigit() else spelling

    return read, write


def _equal(word: Any, value: Any) -> bool:
    if isinstance(word, list) and isinstance(value, list | tuple):
        return set(word) == set(value)
    return bool(word == value) and isinstance(word, bool) == isinstance(value, bool)


def _beside(row: KeyRow) -> Group:
    """A key that counts only where another one has a certain value."""
    other, _, wanted = row.beside.partition("=")
    codec, name = _CODECS[row.codec], norm(row.key)

    def counts(view: View) -> bool:
        entry = view.get(norm(other))
        return entry is not None and str(entry.value).lower().startswith(wanted)

    def read(view: View) -> Iterator[Reading]:
        if name in view and counts(view):
            yield row.field, codec.read(view[name].value), view[name]

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        return {row.key: codec.write(value, view.value(name))} if counts(view) else None

    return Group((row.field,), (row.key,), read, write)


def _parts(field: str, rows: Sequence[WordRow]) -> Group:
    """Flags each of which switches one part of a list on."""

    def read(view: View) -> Iterator[Reading]:
        present = [(row.part, view[norm(row.key)]) for row in rows if norm(row.key) in view]
        if present:
            on = [part for part, entry in present if flag(entry.value)]
            yield field, on, present[0][1]

    def write(_view: View, _field: str, value: Any) -> dict[str, Any] | None:
        if not set(value) <= {row.part for row in rows}:
            return None
        return {row.key: row.part in value for row in rows}

    return Group((field,), tuple(row.key for row in rows), read, write)


def _accumulation(row: TotalBatch) -> Group:
    """Steps of accumulation that a number of samples over all ranks comes to; no key says them."""

    def read(view: View) -> Iterator[Reading]:
        entry = view.get(norm(row.key))
        sizes = [whole(view.value(norm(name))) for name in (row.micro, *row.ranks)]
        absent = [norm(name) not in view for name in (row.micro, *row.ranks)]
        total = whole(entry.value) if entry is not None else None
        if (
            entry is None
            or not total
            or absent[1]
            or any(s is None and not gone for s, gone in zip(sizes, absent, strict=True))
        ):
            return
        each = math.prod(size or 1 for size in sizes)
        if each and total % each == 0:
            yield "grad_accum", total // each, entry

    return Group(("grad_accum",), (row.key,), read, lambda _view, _field, _value: None)
