"""Which keys of a framework say a change, and whether they may stand in a file of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import filterfalse
from typing import Any, Final

from oomdoc.intake.configs.analysis import Doc
from oomdoc.intake.configs.document import FILE_FORMS, SURE, clean_key
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.guessing import guessed_place
from oomdoc.intake.configs.launch import batch_of_each
from oomdoc.intake.configs.programs import library_place
from oomdoc.intake.configs.table import DROP, Group, Key, Table, View, norm
from oomkb.frameworks import ENGINES, LAUNCHERS, PLAIN
from oomkb.kept import lazy


def _present(view: View, names: tuple[str, ...]) -> str | None:
    return view.first(*(norm(n) for n in names))


def _said_by(view: View, key: Key) -> list[str]:
    """The names that say the field: of those that stand there, the first with a value and others with the same."""
    there = [name for name in map(norm, key.names) if name in view]
    read = {name: key.codec.read(view[name].value) for name in there}
    first = next((name for name in there if read[name] is not None), next(iter(there), None))
    places = {view[name].key_span: name for name in reversed(there) if first is not None and read[name] == read[first]}
    return sorted(places.values(), key=there.index)


def writes_for(doc: Doc, view: View, name: str, value: Any) -> tuple[int, dict[str, Any]] | None:
    """What to write for a change, and how well it fits: 0 a key of its own stands there, 1 a new key."""
    if doc.table is None:
        return _guessed(doc, view, name, value) if doc.unknown else None
    keys, groups = doc.table.rows(name)
    if value is None and any(field == name and _is_kind(entry) for field, _, entry in doc.readings()):
        return None
    for level in doc.table.levels():
        for key in (k for k in keys if level.holds(k)):
            made = {
                found: DROP if value is None else key.codec.write(value, view[found].value)
                for found in _said_by(view, key)
            }
            if made and None not in made.values():
                return 0, made
        for group in (g for g in groups if value is not None and level.holds(g)):
            if _present(view, group.names) is not None:
                wanted = group.write(view, name, value)
                if wanted is not None and _may_stand(doc, view, wanted):
                    return 0, dict(wanted)
    if value is not None:
        elsewhere = _guessed(doc, view, name, value) if doc.guessed else None
        wanted = _new(doc, view, keys, groups, name, value) if elsewhere is None else None
        return (1, wanted) if wanted is not None else elsewhere
    for group in groups:
        found = _present(view, group.names)
        if found is not None:
            return 0, {found: DROP}
    return 1, {}


def _guessed(doc: Doc, view: View, name: str, value: Any) -> tuple[int, dict[str, Any]] | None:
    """The change of a key that means the same everywhere."""
    place = guessed_place(doc.open_to_guesses() if doc.program else doc.entries, name, value, trained=doc.program)
    if place is None and name == "micro_batch" and isinstance(value, int):
        place = _smaller_batch(doc, value)
    place = place or (library_place(doc.readings(), name, value) if doc.program else None)
    at = (place[0].key_span, place[0].value_span) if place is not None else None
    places = [found for found in view if (view[found].key_span, view[found].value_span) == at][:1]
    return (0, dict.fromkeys(places, place[1])) if place is not None and places else None


def _smaller_batch(doc: Doc, value: int) -> tuple[Entry, Any] | None:
    """The one batch of a launched program, where a smaller one is each rank's own as well."""
    own = next((r for r in batch_of_each(doc.entries, doc.env, doc.programs, {n for n, _, _ in doc.readings()})), None)
    return (own[2], value) if own is not None and not own[2].shared and value < own[1] else None


_KINDS: Final = frozenset({"_component_", "_target_", "class_path", "type", "name"})


def _is_kind(entry: Entry) -> bool:
    """Whether a key says what its section is: it cannot be left out."""
    return "." in entry.key and entry.key.rpartition(".")[2] in _KINDS


def _new(doc: Doc, view: View, keys: list[Key], groups: list[Group], name: str, value: Any) -> dict[str, Any] | None:
    owner = doc.table
    if owner is None:
        return None
    if "." in name and any(f".{clean_key(e.key)}".endswith(f".{name}") for e in doc.entries):
        return None  # it stands under the field's own name (``lora.r``), where this framework does not look for it
    second = [
        base
        for base in owner.bases[1:]
        if base.name in doc.programs.split() or len(base.record.marks & view.keys()) > 1
    ]
    elsewhere = [base for base in owner.bases if base not in (second or owner.bases[:1])]
    for row in _own_first(owner, keys, groups):
        if any(base.holds(row) for base in elsewhere):
            continue  # of a second trainer, which this file does not start
        if isinstance(row, Key):
            made = row.codec.write(value, None)
            wanted: Mapping[str, Any] | None = None if made is None else {_spelled(doc, view, row): made}
        else:
            wanted = row.write(view, name, value)
        if name == "model" and wanted is not None and not all(norm(key) in view for key in wanted):
            return None  # every run names its model: where none is read, it is said in some other way
        if wanted is not None and _may_stand(doc, view, wanted):
            return dict(wanted)
    return None


_OTHER_SCRIPT: Final = lazy(r"(?:\A|\s)(?:bash|sh)\s+\S{0,200}\.sh\b")


def _may_stand(doc: Doc, view: View, wanted: Mapping[str, Any]) -> bool:
    """Whether every key stands there already or is one that what runs the file is known to take."""
    if doc.table is None or doc.form == "python":
        return doc.table is not None
    apart = doc.form == "shell" and doc.table.name in LAUNCHERS  # its file's keys are no options of its program
    if (apart or not doc.table.adds_all) and doc.table.names.isdisjoint(view):
        return False  # none of its settings is said here: they come from elsewhere
    # Flags of a script that runs nothing are taken in elsewhere, beside others that nobody sees here.
    open_ = doc.table.record.closed.isdisjoint(view) and (doc.form != "shell" or bool(doc.programs.strip()))
    open_ = open_ and _OTHER_SCRIPT.search(doc.programs) is None  # whose own settings nobody sees here
    # A script that nobody knows may take no more than it is given, however like a framework's its arguments are;
    # launchers and engines are run by their own names, or as images.
    if doc.form == "shell" and not doc.marks[0] and doc.table.name not in (*LAUNCHERS, *ENGINES):
        open_ = open_ and view.has_any(doc.table.record.adds_beside)
    # No program of the library itself reads a file: what is in one is read by a script of somebody's own, unless the
    # person says otherwise.
    open_ = open_ and not (doc.table.name == PLAIN and doc.form in FILE_FORMS and doc.probability < 1.0)
    added = [key for key, value in wanted.items() if value is not DROP and norm(key) not in view]
    open_ = open_ and (doc.marks[0] or apart or doc.probability >= SURE)
    return not added or (open_ and all(map(doc.table.may_add, added)) and not _rivalled(doc.table, view, added))


def _rivalled(owner: Table, view: View, added: Sequence[str]) -> bool:
    """Whether new keys stand in a section whose rival the file uses instead."""
    used = owner.record.rivals.intersection(part for key in view for part in key.split("."))
    wanted = owner.record.rivals.intersection(part for key in added for part in key.split("."))
    return bool(used) and not wanted <= used


def _own_first(owner: Table, keys: list[Key], groups: list[Group]) -> list[Key | Group]:
    own: list[Key | Group] = [*filter(owner.holds, groups), *filter(owner.holds, keys)]
    return [*own, *filterfalse(owner.holds, keys), *filterfalse(owner.holds, groups)]


def _spelled(doc: Doc, view: View, key: Key) -> str:
    """The name under which a new key is written: in a script, that of the call which takes it."""
    if doc.form == "python":
        scoped = [n for n in key.names if ":" in n and f"{n.split(':')[0]}()" in {_call(e) for e in view.values()}]
        if scoped:
            return scoped[0]
    plain = [n for n in key.names if ":" not in n]
    if any("." in n for n in plain) and sum("." in norm(k) for k in view) > len(view) // 2 and doc.form == "shell":
        dotted = [n for n in plain if "." in n]
        heads = {k.split(".")[0] for k in view if "." in k}
        fitting = [n for n in dotted if n.split(".")[0] in heads]
        plain = fitting or dotted
    elif doc.form == "shell":
        plain = [n for n in plain if "." not in n] or plain
    return plain[0] if plain else key.names[0]


def _call(entry: Entry) -> str:
    return entry.key.rsplit(".", 1)[-1] if entry.style == "call" else ""
