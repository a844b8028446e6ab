"""Frameworks that are one declarative file each: ``records/<name>.toml``.

A record says what a framework is called and launched by, which of its keys say which job field (both directions), which
keys it knows beside them, and its defaults, with the file and version in which all this was read. What reads and writes
configurations, the defaults and the list of settings all come from it; deleting the file leaves no trace.

- ``title``, ``kind``, ``package``: as in :class:`~oomkb.frameworks.model.Framework`; ``source``: where it was read.
- ``base``: the framework whose keys and defaults it has too; ``ignores``: keys of it that mean something else here.
- ``programs``: regular expressions over what is run or imported.
- ``marks``, ``hints``: keys that only this framework has; keys that it has among others.
- ``adds``: keys that may be written where they do not stand yet; any other is only changed where it stands.
- ``prefixes``: leading parts of a path that may be left out, the longest first.
- ``known``: further keys, which say nothing about memory; ``data.*`` is all of a section.
- ``[keys]``: key = ``"field codec"`` (codecs: ``oomdoc.intake.configs.codecs``), or ``"field codec other=word"`` where
  it counts only beside another key's value, which may go on after the word.
- ``[[words]]``: ``key``, ``field`` and one of ``values`` (spelling = the job's word), ``above_zero`` (the word that any
  number above zero means), ``given`` (the word that its being there means), ``codec`` (for a second field of one key),
  ``part`` (the part of a list that a flag switches on).
- ``[total_batch]``: ``key`` with the samples of all ranks together, ``micro`` and ``ranks``: it gives ``grad_accum``.
- ``[[defaults]]``: ``field``, ``value``, ``why``; ``when``: a circumstance.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from oomkb.errors import CatalogError
from oomkb.frameworks import circumstances
from oomkb.frameworks.model import Default, Framework, Setting
from oomkb.memory.job import Job

__all__ = ["FOLDER", "KeyRow", "Record", "TotalBatch", "WordRow", "framework_of", "load", "records"]

FOLDER: Final = Path(__file__).parent / "records"
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_FIELDS: Final = frozenset(
    """
    title kind package source base aliases programs marks hints prefixes known ignores adds dashes keys words
    total_batch defaults
    """.split()  # noqa: SIM905 (a table of one word each reads worse)
)
_WHEN: Final[Mapping[str, Callable[[Job], bool]]] = {
    name: getattr(circumstances, name) for name in ("lora", "full", "fsdp", "zero", "distributed", "rl", "preference")
}


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key, the job field that it says, the name of the codec that reads and writes its value, and ``other=word``."""

    key: str
    field: str
    codec: str
    beside: str = ""


@dataclass(frozen=True, slots=True)
class WordRow:
    """A key whose value stands for a field's word in one of the ways of ``[[words]]``."""

    key: str
    field: str
    values: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)
    above_zero: str = ""
    given: str = ""
    codec: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class TotalBatch:
    """A key that counts the samples of an optimizer step over all ranks, and the keys that divide it."""

    key: str
    micro: str
    ranks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What ``records/<name>.toml`` says."""

    name: str
    title: str
    kind: str
    package: str
    source: str
    base: str | None = None
    aliases: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()
    hints: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    ignores: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()
    dashes: bool = False
    keys: tuple[KeyRow, ...] = ()
    words: tuple[WordRow, ...] = ()
    total_batch: TotalBatch | None = None
    defaults: tuple[Default, ...] = ()


def load(path: Path) -> Record:
    """The record of a file.

    :raises CatalogError: naming the file, for one that is not TOML or has a field nobody knows.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(
            f"cannot be read: {error}", where=str(path), hint="see oomkb/frameworks/declared.py"
        ) from error
    odd = sorted(set(data) - _FIELDS)
    missing = [name for name in ("title", "kind", "package", "source") if not data.get(name)]
    if odd or missing:
        problem = f"unknown field {odd[0]}" if odd else f"no {missing[0]}"
        raise CatalogError(problem, where=str(path), hint="see oomkb/frameworks/declared.py")
    try:
        return _record(path.stem, data)
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogError(
            f"not a record: {error!r}", where=str(path), hint="see oomkb/frameworks/declared.py"
        ) from error


def _record(name: str, data: Mapping[str, Any]) -> Record:
    source = str(data["source"])
    total = data.get("total_batch")
    return Record(
        name=name,
        title=data["title"],
        kind=data["kind"],
        package=data["package"],
        source=source,
        base=data.get("base"),
        aliases=tuple(data.get("aliases", ())),
        programs=tuple(data.get("programs", ())),
        marks=_words(data, "marks"),
        hints=_words(data, "hints"),
        prefixes=tuple(data.get("prefixes", ())),
        known=_words(data, "known"),
        ignores=_words(data, "ignores"),
        adds=frozenset(key.replace("-", "_") for key in _words(data, "adds")),
        dashes=bool(data.get("dashes", False)),
        keys=tuple(KeyRow(key, *said.split()) for key, said in data.get("keys", {}).items()),
        words=tuple(WordRow(**row) for row in data.get("words", ())),
        total_batch=TotalBatch(total["key"], total["micro"], tuple(total["ranks"])) if total else None,
        defaults=tuple(_default(row, source) for row in data.get("defaults", ())),
    )


def _words(data: Mapping[str, Any], name: str) -> frozenset[str]:
    return frozenset(str(data.get(name, "")).split())


def _default(row: Mapping[str, Any], source: str) -> Default:
    made = Default(row["field"], row["value"], row["why"], row.get("source", source), row.get("versions", ""))
    return (
        made
        if "when" not in row
        else Default(made.field, made.value, made.why, made.source, made.versions, when=_WHEN[row["when"]])
    )


@cache
def records() -> tuple[Record, ...]:
    """Every record, by name."""
    return tuple(load(path) for path in sorted(FOLDER.glob("*.toml")))


def framework_of(record: Record) -> Framework:
    """The framework as the defaults and the planner know it: it can set what it has a key for."""
    limits: dict[str, frozenset[Any] | None] = {row.field: None for row in record.keys}
    for row in record.words:
        if row.codec:
            limits[row.field] = None
        elif row.field not in limits or limits[row.field] is not None:
            said = {word for value in row.values.values() for word in (value if isinstance(value, list) else [value])}
            said |= {row.part, row.above_zero} - {""}
            limits[row.field] = frozenset(said) | (limits.get(row.field) or frozenset())
    return Framework(
        name=record.name,
        title=record.title,
        kind=record.kind,  # type: ignore[arg-type]
        package=record.package,
        aliases=record.aliases,
        base=record.base,
        defaults=record.defaults,
        settings=tuple(Setting(name, values) for name, values in limits.items()),
    )
