"""Frameworks, each as one declarative file: ``records/<name>.toml``.

A record says what a framework is called and launched by, which of its keys say which job field (both directions), which
keys it knows beside them, what it can be set to, and its defaults, with the file and version in which all this was
read. What reads and writes configurations, the defaults and the list of settings all come from it; deleting the file
leaves no trace.

- ``title``; ``kind``: ``training``, ``serving``, ``rl`` or ``launcher``; ``package``: its name in a job's ``versions``;
  ``source``: where it was read.
- ``base``: the framework whose keys and defaults it has too; ``reads``: those whose keys it has, where they are others
  than the base; ``ignores``: keys of them that mean something else here, and classes whose calls are not the run's.
- ``programs``: regular expressions over what is run or imported.
- ``scripts``: likewise, over names that scripts of others have too: each counts beside two of the hints.
- ``starts``: what is typed to start it; before an option, such a word may be a value all the same (``--backend vllm``).
- ``marks``, ``hints``: keys that only this framework has; keys that it has among others.
- ``own_prefixes``: leading parts of a path that only this framework's keys have: each such key counts for it.
- ``adds``: keys that may be written where they do not stand yet; any other is only changed where it stands; ``*``: all
  that the record itself has, and those of its base.
- ``adds_beside``: keys of which one shows that a script that nobody knows takes all of ``adds``.
- ``rivals``: sections of which a run uses one: where a key of one stands, none of another is added.
- ``closed``: keys of another form of its files, in which settings are only changed where they stand.
- ``prefixes``: leading parts of a path that may be left out, the longest first.
- ``by_last_part``: whether a nested key counts by its last part alone; ``whole_paths``: whether it never does (so it is
  where a record builds on no other).
- ``toml``: whether its configurations may be TOML.
- ``library``: whether people call it from scripts of their own, which they can change; others are run as they are.
- ``dashes``, ``bare_flags``: whether flags are spelt with dashes, and whether a switch takes no value.
- ``deepspeed_file``: how the DeepSpeed configurations that it brings are named; ``deepspeed_offloading``: those that
  offload the optimizer although their names do not say so.
- ``known``: further keys, which say nothing about memory; ``data.*`` is all of a section.
- ``[described]``: what a model described by its sizes alone has unless set otherwise, in ``config.json``'s names.
- ``[roles]``: ``keys`` that each section of ``names`` has (``-``: no section), known like these.
- ``[keys]``: key = ``"field codec"`` (codecs: ``oomdoc.intake.configs.codecs``), or ``"field codec other=word"`` where
  it counts only beside another key's value, which may go on after the word. Several keys apart by blanks mean the
  same, and the first is what a new setting is called; ``Call:key`` is an argument of a call.
- ``[[words]]``: ``key``, ``field`` and one of ``values`` (spelling = the job's word), ``above_zero`` (the word that any
  number above zero means), ``given`` (the word that its being there means), ``codec`` (for a second field of one key),
  ``part`` (the part of a list that a flag switches on; ``also``: keys that follow it where they stand). Several keys
  apart by commas mean the same.
- ``[[rules]]``: what a table of keys cannot say: ``field``, ``read`` (conditions and the value they mean, the first
  that holds), ``write`` (value, changes, conditions) and ``keys`` (those that stand for the field, where they are not
  those of the conditions), or ``shared``: the name and words of a rule that several frameworks have
  (``oomdoc.intake.configs.rules`` and ``shared``).
- ``[[needs]]``: what it takes only beside something else: where the conditions ``when`` hold, those of ``also`` must.
  What would break one of these is not written (``source``: the check, or what happens without).
- ``[[totals]]``: ``key`` counts samples of all ranks together, which divided by the values of ``by`` is ``gives``;
  where it gives nothing, all that are stated must stay in proportion.
- ``[settings]``: the fields it can be set to, where they are not those it has keys for: ``any``, and ``"field >=1.0"``
  = the values.
- ``features``, ``[lines]``: what a remedy may ask for, and how it is said here (:mod:`oomkb.frameworks.completion`).
- ``defaults``: ``field``, ``value`` or ``value_of`` (of those in :data:`oomkb.frameworks.circumstances.VALUES`, or of
  another field, 1 where that is open), ``why``; ``when``: a circumstance; ``versions``; ``source``
  (:mod:`oomkb.frameworks.circumstances`). The first whose circumstances hold counts.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError
from oomkb.frameworks.circumstances import VALUES, circumstance
from oomkb.frameworks.model import Default, Setting
from oomkb.memory.job import FIELD_NAMES, Job
from oomkb.tables import read_toml

FOLDER: Final = Path(__file__).parent / "records"
_COMMON: Final = Path(__file__).with_name("defaults.toml")
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_HINT: Final = "see oomkb/frameworks/declared.py"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """Keys that mean the same, the job field that they say, the codec of their value, and ``other=word``."""

    keys: tuple[str, ...]
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
    also: str = ""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A row of ``[[rules]]``."""

    field: str = ""
    keys: str | None = None
    read: tuple[tuple[str, Any], ...] = ()
    write: tuple[tuple[Any, ...], ...] = ()
    shared: str = ""


@dataclass(frozen=True, slots=True)
class NeedRow:
    """A row of ``[[needs]]``."""

    when: str
    also: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class TotalBatch:
    """A key that counts samples over all ranks, and the keys that divide it."""

    key: str
    gives: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What ``records/<name>.toml`` says."""

    name: str
    title: str
    kind: str
    package: str
    source: str
    base: str | None = None
    reads: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    starts: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    hints: frozenset[str] = frozenset()
    own_prefixes: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    ignores: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    rivals: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()
    adds_beside: frozenset[str] = frozenset()
    toml: bool = False
    library: bool = False
    dashes: bool = False
    bare_flags: bool = False
    by_last_part: bool = False
    whole_paths: bool | None = None
    features: str = ""
    min_compute: float = 0.0
    """The lowest compute capability of NVIDIA's cards for which the program is built; 0 where there is no bound."""
    lines: Mapping[str, str] = dataclasses.field(default_factory=lambda: _EMPTY)
    deepspeed_file: str = ""
    deepspeed_offloading: frozenset[str] = frozenset()
    described: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)
    roles: Mapping[str, str] = dataclasses.field(default_factory=lambda: _EMPTY)
    keys: tuple[KeyRow, ...] = ()
    words: tuple[WordRow, ...] = ()
    rules: tuple[RuleRow, ...] = ()
    needs: tuple[NeedRow, ...] = ()
    totals: tuple[TotalBatch, ...] = ()
    settings: tuple[Setting, ...] = ()
    """What it can be set to: as listed, else what it has a key for."""
    defaults: tuple[Default, ...] = ()
    """With those of every engine, where it is one."""


_FORMS: Final = {f.name: str(f.type) for f in dataclasses.fields(Record) if f.name != "name"}
_WORDS: Final = tuple(name for name, form in _FORMS.items() if form == "frozenset[str]" and name != "adds")
_LISTS: Final = tuple(name for name, form in _FORMS.items() if form == "tuple[str, ...]" and name != "reads")
_PLAIN: Final = tuple(
    name for name, form in _FORMS.items() if form.startswith(("str", "bool", "float", "Mapping[str, "))
)


def load(path: Path) -> Record:
    """The record of a file.

    :raises CatalogError: naming the file, for one that is not TOML or has a field nobody knows.
    """
    try:
        data = read_toml(path)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(f"cannot be read: {error}", where=str(path), hint=_HINT) from error
    odd = sorted(data.keys() - _FORMS.keys())
    missing = [name for name in ("title", "kind", "package", "source") if not data.get(name)]
    if odd or missing:
        problem = f"unknown field {odd[0]}" if odd else f"no {missing[0]}"
        raise CatalogError(problem, where=str(path), hint=_HINT)
    try:
        return _record(path.stem, data)
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogError(f"not a record: {error!r}", where=str(path), hint=_HINT) from error


def _record(name: str, data: Mapping[str, Any]) -> Record:
    source, base, serves = str(data["source"]), data.get("base"), data["kind"] == "serving"
    keys = tuple(KeyRow(tuple(keys.split()), *said.split()) for keys, said in data.get("keys", {}).items())
    words = tuple(WordRow(**row) for row in data.get("words", ()))
    simple: dict[str, Any] = {field: data[field] for field in _PLAIN if field in data}
    simple |= {field: tuple(data.get(field, ())) for field in _LISTS}
    simple |= {field: frozenset(str(data.get(field, "")).split()) for field in _WORDS}
    return Record(
        name=name,
        **simple,
        reads=tuple(data.get("reads", [base] if base else [])),
        adds=frozenset(key.replace("-", "_") for key in str(data.get("adds", "")).split()),
        keys=keys,
        words=words,
        rules=tuple(_rule(row) for row in data.get("rules", ())),
        needs=tuple(NeedRow(**row) for row in data.get("needs", ())),
        totals=tuple(TotalBatch(row["key"], row["gives"], tuple(row["by"])) for row in data.get("totals", ())),
        settings=tuple(_settings(data.get("settings", {})) or _settable(keys, words)),
        defaults=(
            *(_of_engines("engine") if serves else ()),
            *(default_of(row, source) for row in data.get("defaults", ())),
            *(_of_engines("engine_last") if serves and not base else ()),
        ),
    )


def _rule(row: Mapping[str, Any]) -> RuleRow:
    lists = {name: tuple(map(tuple, row[name])) for name in ("read", "write") if name in row}
    return RuleRow(**{**row, **lists})


def _settings(data: Mapping[str, Any]) -> list[Setting]:
    found = [Setting(name) for name in str(data.get("any", "")).split()]
    for written, values in data.items():
        if written != "any":
            name, _, versions = written.partition(" ")
            found.append(Setting(name, None if values == "*" else frozenset(values), versions))
    return found


def default_of(row: Mapping[str, Any], source: str, **more: Callable[[Job], Any]) -> Default:
    """A row of ``defaults``; ``source`` is where it was read, unless the row says.

    :param more: what ``value_of`` may name beside :data:`~oomkb.frameworks.circumstances.VALUES`.
    :raises KeyError: for a row without a field, a reason or a value, or with an unknown ``value_of``.
    :raises ValueError: for a circumstance of no known form.
    """
    name = row.get("value_of")
    value = _of_field(name) if name in FIELD_NAMES else {**VALUES, **more}[name] if name else row["value"]
    when = circumstance(row["when"]) if "when" in row else None
    return Default(row["field"], value, row["why"], row.get("source", source), row.get("versions", ""), when)


def _of_field(name: str) -> Callable[[Job], Any]:
    return lambda job: job.get(name) or 1


@cache
def records() -> tuple[Record, ...]:
    """Every record, by name."""
    return tuple(load(path) for path in sorted(FOLDER.glob("*.toml"), key=lambda path: path.stem))


@cache
def _of_engines(part: str) -> tuple[Default, ...]:
    return tuple(default_of(row, "engine arguments") for row in read_toml(_COMMON)[part])


def _settable(keys: Iterable[KeyRow], words: Iterable[WordRow]) -> Iterator[Setting]:
    """What it can be set to where no list says so: what it has a key for."""
    limits: dict[str, frozenset[Any] | None] = {row.field: None for row in keys}
    for row in words:
        if row.codec:
            limits[row.field] = None
        elif row.field not in limits or limits[row.field] is not None:
            said = {word for value in row.values.values() for word in (value if isinstance(value, list) else [value])}
            said |= {row.part, row.above_zero} - {""}
            limits[row.field] = frozenset(said) | (limits.get(row.field) or frozenset())
    yield from (Setting(name, values) for name, values in limits.items())
