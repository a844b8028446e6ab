"""Tables of the frameworks, made from their records (:mod:`oomkb.frameworks.declared`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from oomdoc.intake.configs import codecs
from oomdoc.intake.configs.named_codecs import CODECS
from oomdoc.intake.configs.rules import need_of, present, rule_group
from oomdoc.intake.configs.shared import shared_group
from oomdoc.intake.configs.table import Group, Key, Reading, Table, View, norm
from oomdoc.intake.configs.values import flag, whole
from oomkb.frameworks import canonical
from oomkb.frameworks.declared import KeyRow, Record, RuleRow, TotalBatch, WordRow, records


def _table(record: Record, bases: tuple[Table, ...]) -> Table:
    sections = (n for n in record.known if n.endswith(".*"))
    known = {norm(n).removesuffix(".*") for n in record.known}
    keys, groups = tuple(_key(row) for row in record.keys if not row.beside), tuple(_groups(record))
    whole = "*" in record.adds
    adds = record.adds.union(
        *(base.adds for base in bases if whole or (base.name == record.base and not base.adds_all))
    )
    if whole:
        named = (*(row.names for row in keys), *(row.names for row in groups))
        adds |= {norm(name) for names in named for name in names} | set(_written(record))
    return Table(
        record=record,
        keys=keys,
        groups=groups,
        needs=tuple(need_of(row, _heads(record)) for row in record.needs),
        products=tuple((row.key, *row.by) for row in record.totals if not row.gives),
        bases=bases,
        neutral=frozenset(known | set(_of_roles(record))),
        sections=tuple(norm(n)[:-1] for n in sections),
        hints=record.hints.union(*(base.hints for base in bases)),
        described=record.described or next((base.described for base in bases if base.name == record.base), {}),
        exact=not bases if record.whole_paths is None else record.whole_paths,
        adds=adds,
        adds_all=whole,
    )


def _written(record: Record) -> Iterator[str]:
    """The keys that a record's rules write."""
    for rule in record.rules:
        for _, changes, *_ in rule.write:
            for word in changes.split() if isinstance(changes, str) else changes:
                yield from map(norm, word.lstrip("?+-").partition("=")[0].split(","))


def _of_roles(record: Record) -> Iterator[str]:
    """Each role has the same settings; those of the model that is trained have rows of their own."""
    for role in record.roles.get("names", "").split():
        for key in record.roles["keys"].split():
            yield norm(key if role == "-" else f"{role}.{key}")


def _key(row: KeyRow) -> Key:
    return Key(row.field, row.keys, CODECS[row.codec])


def _groups(record: Record) -> Iterator[Group]:
    for row in record.keys:
        if row.beside:  # counts only where another key has a certain value
            key, beside = row.keys[0], row.beside.replace("=", "~")
            read, write = ((f"{key}=* {beside}", f"${row.codec}"),), (("*", f"{key}=${row.codec}", beside),)
            yield rule_group(RuleRow(row.field, read=read, write=write), CODECS, _heads(record))
    for word in record.words:
        if not word.part:
            yield _word(word)
    parts = [word for word in record.words if word.part]
    for name in dict.fromkeys(word.field for word in parts):
        yield _parts(name, [word for word in parts if word.field == name])
    for rule in record.rules:
        yield shared_group(rule.shared) if rule.shared else rule_group(rule, CODECS, _heads(record))
    yield from (_division(total) for total in record.totals if total.gives)


def _heads(record: Record) -> frozenset[str]:
    """The sections that the framework's keys have."""
    return frozenset(key.split(".")[0] for row in record.keys for key in row.keys if "." in key)


def _word(row: WordRow) -> Group:
    """A key whose value stands for a word of the job."""
    spelt = tuple(row.key.split(","))
    names = tuple(map(norm, spelt))
    read, write = _way(row)

    def read_view(view: View) -> Iterator[Reading]:
        for name in names:
            entry = view.get(name)
            if entry is not None and (value := read(entry.value)) is not None:
                yield row.field, value, entry
                return

    def write_view(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        name = view.first(*names)
        written = write(value, view[name].value if name else None)
        return None if written is None else {name or spelt[0]: written}

    return Group((row.field,), spelt, read_view, write_view)


_AT_ZERO: Final = {"lora": "full"}
"""What a count of zero says, where one above it says the key: adapters of rank 0 are none."""


def _way(row: WordRow) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    if row.codec:
        codec = CODECS[row.codec]
        return codec.read, lambda value, old: codec.write(value, old) if old is not None else None
    if row.above_zero:
        at_zero = _AT_ZERO.get(str(row.above_zero))

        def counted(value: Any) -> Any:
            count = whole(value)
            return None if count is None or count < 0 else row.above_zero if count else at_zero

        return counted, lambda _value, _old: None
    if row.given:
        return lambda value: row.given if value not in (None, False) else None, lambda _value, _old: None
    table = {str(spelling).lower(): word for spelling, word in row.values.items()}

    def read(value: Any) -> Any:
        text = str(value).strip().strip("\"'").lower()
        return table[text] if text in table else table.get(str(flag(value)).lower())

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


def _parts(field: str, rows: Sequence[WordRow]) -> Group:
    """Flags each of which switches one part of a list on."""
    names = {row.part: tuple(map(norm, row.key.split(","))) for row in rows}
    heads = frozenset(name.split(".")[0] for each in names.values() for name in each if "." in name)

    def read(view: View) -> Iterator[Reading]:
        there = {part: view[name] for part, each in names.items() if (name := view.first(*each)) is not None}
        if there:
            on = [part for part, entry in there.items() if flag(entry.value)]
            yield field, on, there[on[0]] if on else next(iter(there.values()))

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        if not set(value) <= names.keys():
            return None
        chosen = {part: present(view, each, heads) for part, each in names.items()}
        made = {name: part in value for part, name in chosen.items() if part in value or name in view}
        along = {norm(name): row.part in value for row in rows for name in row.also.split(",") if norm(name) in view}
        return made | along

    return Group((field,), tuple(name for each in names.values() for name in each), read, write)


def _division(row: TotalBatch) -> Group:
    """What a number of samples over all ranks comes to on each; only a key for the samples of a rank writes it back."""
    divisors = tuple(map(norm, row.by))

    def factor(view: View) -> int | None:
        sizes = [whole(view.value(name)) if name in view else 1 for name in divisors]
        ranks = divisors if row.gives == "micro_batch" else divisors[1:]
        alone = view.form == "shell" and view.programs.startswith("python") and view.keys().isdisjoint(ranks)
        known = ranks[0] in view or (alone and all(name in view for name in divisors if name not in ranks))
        return math.prod(s or 1 for s in sizes) if known and None not in sizes else None

    def read(view: View) -> Iterator[Reading]:
        entry, each = view.get(norm(row.key)), factor(view)
        total = whole(entry.value) if entry is not None else None
        if entry is not None and total and each and total % each == 0:
            yield row.gives, total // each, entry

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        each = factor(view)
        return {row.key: value * each} if each and row.gives == "micro_batch" and norm(row.key) in view else None

    return Group((row.gives,), (row.key,), read, write)


def _declared() -> tuple[Table, ...]:
    """A table for each record that has keys, by name."""
    by_name = {record.name: record for record in records()}
    made: dict[str, Table] = {}

    def made_table(name: str) -> Table:
        if name not in made:
            record = by_name[name]
            made[name] = _table(record, tuple(made_table(base) for base in record.reads))
        return made[name]

    return tuple(made_table(record.name) for record in records() if record.keys or record.rules or record.reads)


TABLES: tuple[Table, ...] = _declared()
"""One per framework, in the order of their names."""


@cache
def table(name: str | None) -> Table | None:
    """The table of a framework, by any of its names."""
    known = canonical(name) or name
    return next((t for t in TABLES if t.name == known), None)


@cache
def all_names() -> frozenset[str]:
    """Every key that any table reads, whole and by its last part."""
    names = {n for t in TABLES for n in (*t.names, *t.record.marks, *t.hints)}
    return frozenset(names | {n.rsplit(".", 1)[-1].rsplit(":", 1)[-1] for n in names})
