"""The shape of a framework's table: which keys say which job field, in both directions.

A :class:`Key` is one key for one field; a :class:`Group` is several keys that say something together (``bf16`` and
``fp16``; ``load_in_4bit`` and its double quantisation). Reading and writing are two columns of the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.wordlist import words
from oomkb.dataclass import dataclass
from oomkb.frameworks.declared import Record
from oomkb.kept import lazy

__all__ = ["DROP", "OTHER_LOADS", "Codec", "Group", "Key", "Raw", "Reading", "Table", "View", "norm", "words"]


class _Drop:
    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop()
"""Written in place of a value: the key is taken out."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Text to be written as it stands, without quotes (``torch.bfloat16``)."""

    text: str
    needs: str = ""
    """The import line the text needs in a script."""


Reading = tuple[str, Any, Entry]
Writes = Mapping[str, Any]


def norm(key: str) -> str:
    """Flags are the same with dashes and underscores."""
    return key.replace("-", "_")


@dataclass(frozen=True, slots=True)
class Codec:
    """How one value is read (``None``: says nothing) and written (given the value that stands there)."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key for one field. The first of ``names`` is what a new setting is called.

    A name may be bound to a call, ``LoraConfig:r``.
    """

    field: str
    names: tuple[str, ...]
    codec: Codec


@dataclass(frozen=True, slots=True)
class Group:
    """Several keys that say something together."""

    fields: tuple[str, ...]
    names: tuple[str, ...]
    read: Callable[[View], Iterable[Reading]]
    write: Callable[[View, str, Any], Writes | None]
    """Given the field and its new value: key -> value, or ``None`` where it cannot be said."""


@dataclass(frozen=True, slots=True)
class Need:
    """A combination of settings that the framework refuses, ends on, or leaves without effect."""

    keys: frozenset[str]
    """The keys that it is about."""
    broken: Callable[[View], bool]
    text: str
    """What has to stand beside."""


class View(dict[str, Entry]):
    """The settings of one document by (normalised) key; the last one given counts, as frameworks do it."""

    def __init__(
        self, entries: Iterable[Entry], *, form: str = "yaml", table: Table | None = None, programs: str = ""
    ) -> None:
        super().__init__()
        self.form = form
        self.table = table
        self.framework = table.name if table is not None else ""
        self.programs = programs
        for entry in entries:
            for name in names_of(entry):
                current = self.get(name)
                again = entry.style == "kwarg" and ":" in name  # of several calls of one name the first counts
                if current is not None and (again or (not entry.resolved and current.resolved)):
                    continue
                self[name] = entry

    def has_any(self, names: frozenset[str]) -> bool:
        """Whether one of these keys is there."""
        return not names.isdisjoint(self)

    def value(self, *names: str) -> Any:
        """The value of the first of these keys that is there."""
        for name in names:
            entry = self.get(name)
            if entry is not None and entry.resolved:
                return entry.value
        return None

    def first(self, *names: str) -> str | None:
        """The first of these keys that is there."""
        return next((n for n in names if n in self), None)


_CONFIG_CALL: Final = lazy(
    r"(?:Config|Arguments|Args|from_pretrained|get_peft_model|LLM|Engine|Plugin|Trainer|dict|Accelerator|Strategy|recipe"
    r"|LoRA|DataModule|pipeline|field|Model|FinetuneDataModule)\Z"
)


OTHER_LOADS: Final = lazy(
    r"[Rr]eward|[Cc]ritic|Tokenizer|Processor|FeatureExtractor|Config\.from_pretrained|Flax|\bTF[A-Z]"
)
"""Calls that load no model, or none of PyTorch."""


def names_of(entry: Entry) -> Iterator[str]:
    """The names under which a table may know the entry."""
    if entry.off:
        return
    key = norm(entry.key)
    if entry.style in ("kwarg", "item") and entry.scope and entry.scope not in ("dict",):
        call = entry.scope.rsplit(".", 1)[-1]
        if entry.style == "kwarg" or (entry.key.startswith("@") and not OTHER_LOADS.search(entry.scope)):
            yield f"{call}:{key}"
        if entry.style == "kwarg" and not _CONFIG_CALL.search(call):
            return
    yield key


@dataclass(frozen=True, kw_only=True)
class Table:
    """One framework's table."""

    record: Record
    """Where all that is no key stands."""
    keys: tuple[Key, ...] = ()
    groups: tuple[Group, ...] = ()
    needs: tuple[Need, ...] = ()
    products: tuple[tuple[str, ...], ...] = ()
    """Keys of which the first is in proportion to the product of the others."""
    bases: tuple[Table, ...] = ()
    """Tables whose keys also count (own keys first)."""
    neutral: frozenset[str] = frozenset()
    """Keys that are known and say nothing about memory."""
    hints: frozenset[str] = frozenset()
    """Keys that this framework has among others."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """What a model described by its sizes alone has unless set otherwise."""
    sections: tuple[str, ...] = ()
    """Leading path parts all of whose keys are known (``optimizer.``)."""
    adds: frozenset[str] = frozenset()
    """Keys that may be written where they do not stand yet: what runs the file is known to take these."""
    adds_all: bool = False
    """Whether these are all of its own keys: what it runs says none of its settings elsewhere."""
    exact: bool = False
    """Whether nested keys count by their whole path alone."""

    @property
    def name(self) -> str:
        """Canonical framework name."""
        return self.record.name

    def levels(self) -> Iterator[Table]:
        """This table, then those it stands on, nearest first."""
        yield self
        for base in self.bases:
            yield from base.levels()

    def all_keys(self) -> Iterator[Key]:
        """Own keys, then the bases'."""
        return (key for level in self.levels() for key in level.keys)

    def all_groups(self) -> Iterator[Group]:
        """Own groups, then the bases'."""
        return (group for level in self.levels() for group in level.groups)

    def holds(self, row: Key | Group) -> bool:
        """Whether a row, or an equal one, is among its own."""
        return row in self._own.get(row.field if isinstance(row, Key) else row.fields, ())

    @cached_property
    def _own(self) -> Mapping[str | tuple[str, ...], list[Key | Group]]:
        found: dict[str | tuple[str, ...], list[Key | Group]] = {}
        for key in self.keys:
            found.setdefault(key.field, []).append(key)
        for group in self.groups:
            found.setdefault(group.fields, []).append(group)
        return found

    def rows(self, field: str) -> tuple[list[Key], list[Group]]:
        """The keys and the groups that say a field, own ones first."""
        return self._rows.get(field, ([], []))

    @cached_property
    def _rows(self) -> Mapping[str, tuple[list[Key], list[Group]]]:
        found: dict[str, tuple[list[Key], list[Group]]] = {}
        for key in self.all_keys():
            found.setdefault(key.field, ([], []))[0].append(key)
        for group in self.all_groups():
            for name in dict.fromkeys(group.fields):
                found.setdefault(name, ([], []))[1].append(group)
        return found

    @cached_property
    def own_names(self) -> frozenset[str]:
        """Every key of its own rows."""
        own = {n for key in self.keys for n in key.names} | {n for group in self.groups for n in group.names}
        return frozenset(map(norm, own))

    @cached_property
    def names(self) -> frozenset[str]:
        """Every key the table reads."""
        return self.own_names.union(*(base.names for base in self.bases))

    def keys_in(self, view: View) -> Iterator[Key]:
        """Own keys that stand in a document under one of their names, in the table's order."""
        places = {place for name in view for place in self._places.get(name, ())}
        return (self.keys[place] for place in sorted(places))

    @cached_property
    def _places(self) -> Mapping[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for place, key in enumerate(self.keys):
            for name in map(norm, key.names):
                found[name] = (*found.get(name, ()), place)
        return found

    @cached_property
    def understood(self) -> frozenset[str]:
        """Every key that it reads, and those that are known and say nothing."""
        return self.names | self.neutrals

    @cached_property
    def in_full(self) -> frozenset[str]:
        """The same as flags are told apart."""
        return frozenset(map(norm, self.understood))

    @cached_property
    def neutrals(self) -> frozenset[str]:
        """Every key that is known and neutral."""
        return self.neutral.union(*(base.neutrals for base in self.bases))

    @cached_property
    def base_marks(self) -> frozenset[str]:
        """Keys that only frameworks have which it stands on."""
        return frozenset().union(*(level.record.marks for base in self.bases for level in base.levels()))

    def knows(self, key: str) -> bool:
        """Whether a (normalised) key is known, by itself or by its section."""
        return key in self.known or (bool(self.sections) and key.startswith(self.sections))

    def may_add(self, key: str) -> bool:
        """Whether a key that is not in the file yet may be written into it."""
        return norm(key) in self.adds

    @cached_property
    def known(self) -> frozenset[str]:
        """Every key that the table reads or knows as neutral."""
        return self.names | self.neutrals | self.record.marks | self.hints
