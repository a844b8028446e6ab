"""What a text of several documents says as a whole, and whether a changed one says what was asked and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from oomdoc.intake.configs.analysis import Doc, analyse
from oomdoc.intake.configs.document import believed, clean_key
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.launch import launch_facts, launch_option
from oomdoc.intake.configs.read_back import as_counted, has_use, is_off, same, says, stored_otherwise
from oomdoc.intake.configs.table import Need, Reading, View, norm
from oomdoc.intake.configs.values import number
from oomdoc.intake.configs.wordlist import word_set
from oomkb.dataclass import dataclass
from oomkb.frameworks import LAUNCHERS

_OF_ADAPTERS: Final = frozenset({"method", "lora.r", "lora.targets", "quant"})
_OF_ONE_KEY: Final = word_set("of_one_key")
_WITH_A_VARIABLE: Final = word_set("with_a_variable")
_NOT_BY_THE_WAY: Final = word_set("not_by_the_way")
_TOGETHER: Final = (
    frozenset(("method", "quant", "lora.dtype")),
    frozenset(("optimizer", "optimizer_impl")),
    frozenset(("world", "gpus", "nodes")),
    frozenset(("tp", "sp")),
    frozenset(("model", "model_config", "quant", "method", "extra_models")),
    frozenset(("objective", "extra_models")),
)
"""Fields that are said together: a change of one may change another."""


@lru_cache(maxsize=64)
def analysed(filename: str, text: str, framework: str | None) -> tuple[Doc, ...]:
    """As :func:`analyse`: the fields of a plan, and the plans of a diagnosis, go into the same few texts."""
    return tuple(analyse(filename, text, framework))


@lru_cache(maxsize=64)
def _candidates(filename: str, text: str, framework: str | None) -> tuple[tuple[int, Doc], ...]:
    docs = analysed(filename, text, framework)
    known = ((index, doc) for index, doc in enumerate(docs) if doc.table is not None or doc.unknown)
    ranked = sorted(known, key=lambda each: (believed(each[1]), -len(each[1].readings()), -len(each[1].entries)))
    return tuple(ranked)


@dataclass(frozen=True, slots=True)
class Text:
    """A text under its name, with the framework that somebody named."""

    text: str
    filename: str
    framework: str | None

    @property
    def docs(self) -> tuple[Doc, ...]:
        """Its pieces."""
        return analysed(self.filename, self.text, self.framework)

    @property
    def candidates(self) -> tuple[tuple[int, Doc], ...]:
        """The pieces a change may go into, the run itself before launchers' files and scattered keys."""
        return _candidates(self.filename, self.text, self.framework)

    @property
    def values(self) -> Mapping[str, Any]:
        """What it says, field by field; the document read first wins, as a patch goes there first."""
        return _values(self.filename, self.text, self.framework)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Every key as it is written, nested ones as paths, with its value."""
        entries = (e for doc in self.docs for e in doc.entries if e.style != "call" and not e.key.startswith("@"))
        return {entry.key: entry.value for entry in entries if not isinstance(entry.value, Mapping)}

    def uses(self, name: str, value: Any) -> bool:
        """Whether the run that it describes makes use of a field."""
        said = self.values
        if name == "quant" and value != "none" and said.keys().isdisjoint(_OF_ADAPTERS) and self._trains():
            return False  # every parameter is trained
        return "framework" not in said or value is None or has_use(said, *as_counted(said, name, value))

    def _trains(self) -> bool:
        """Whether it is a program that makes a trainer."""
        return any(doc.form == "python" and "Trainer" in doc.programs for doc in self.docs)

    def has_key(self, name: str) -> bool:
        """Whether a document says a field by a key of its table."""
        return any(found == name for doc in self.docs for found, _, _ in doc.readings())

    def stated_outside(self) -> list[tuple[str, Entry]]:
        """The fields that launchers' flags and the environment state."""
        launched = _launched(self.filename, self.text, self.framework)
        return [(name, entry) for facts in launched for name, _, entry in facts]

    def left_open(self, name: str) -> list[Entry]:
        """The settings of a field whose values it does not say: variables, arguments, ``auto``, and what is not read
        although it is called like one of the field's keys.
        """
        found = []
        for _, doc in self.candidates:
            names = keys_for(doc, name)
            last = {n.rsplit(".", 1)[-1].rsplit(":", 1)[-1] for n in names}
            read = {entry.key_span for _, _, entry in doc.readings()}
            view = doc.view()
            found += [view[n] for n in names if n in view and not view[n].resolved]
            found += [
                e
                for e in doc.entries
                if not e.off and e.key_span not in read and clean_key(e.key).rsplit(".", 1)[-1] in last
                if e.style in ("attribute", "kwarg") or e.value == "auto"
            ]
            found += [e for e in doc.entries if not e.resolved and launch_option(e) == name]
        return found

    def taken_over(self, found: Sequence[Entry]) -> bool:
        """Whether ``auto`` among these settings stands for what the trainer that takes the file says."""
        launchers = [doc for doc in self.docs if doc.table is not None and doc.table.name in LAUNCHERS]
        autos = {entry.key_span for entry in found if entry.value == "auto"}
        return any(entry.key_span in autos for doc in launchers for entry in doc.entries)


@lru_cache(maxsize=64)
def _launched(filename: str, text: str, framework: str | None) -> tuple[tuple[Reading, ...], ...]:
    """Of each piece what launchers' flags and the environment state."""
    return tuple(tuple(launch_facts(doc.entries, doc.env)) for doc in analysed(filename, text, framework))


@lru_cache(maxsize=64)
def _values(filename: str, text: str, framework: str | None) -> Mapping[str, Any]:
    out: dict[str, Any] = {}
    launched = _launched(filename, text, framework)
    for index, doc in _candidates(filename, text, framework):
        if doc.table is not None:
            out.setdefault("framework", doc.table.name)
        for name, value, _ in doc.readings():
            out.setdefault(name, value)
        for name, value, _ in launched[index]:
            out.setdefault(name, value)
    for doc, facts in zip(analysed(filename, text, framework), launched, strict=True):
        for name, value, _ in facts:
            out.setdefault(name, value)
        for entry in doc.env:
            out.setdefault(f"env.{entry.key}", entry.value)
    return MappingProxyType(out)


def misread(before: Text, after: Text, wanted: Mapping[str, Any]) -> dict[str, str]:
    """The changes that the patched text does not say, or all of them where it says more than they ask for."""
    said = after.values
    bad: dict[str, str] = {}
    for name, value in wanted.items():
        if name == "method" and wanted.get("quant") is not None and said.get(name) in ("lora", "qlora"):
            continue  # the storage of the base decides between the two
        doubled = name == "quant" and (value, said.get(name)) == ("nf4", "nf4-double")  # by default, of some scripts
        if not says(said, name, value) and not doubled:
            bad[name] = "not-read-back"
    quant = said.get("quant")
    if not same(quant, before.values.get("quant")) and stored_otherwise(said, quant):
        bad.update(dict.fromkeys(wanted.keys() & {"quant", "method"}, "stored"))
    bad.update(dict.fromkeys(_said_still(before, after, wanted), "not-read-back"))
    bad.update(_refused(before, after, wanted))
    return bad or (dict.fromkeys(wanted, "not-read-back") if _altered(before, after, wanted) else {})


def _altered(before: Text, after: Text, wanted: Mapping[str, Any]) -> list[str]:
    """The fields beside those asked for that the text says otherwise now, or no longer."""
    old, new = before.values, after.values
    if old.get("framework") in LAUNCHERS and new.get("framework") != old["framework"]:
        return ["framework"]  # what was a launcher's option would be read as the script's
    free = {"framework"} | {as_counted(old, name, value)[0] for name, value in wanted.items()} | set(wanted)
    free.update(*(group for group in _TOGETHER if not group.isdisjoint(wanted)))
    readings = [reading for doc in before.docs for reading in doc.readings()]
    free |= {name for name, _, entry in readings if entry.shared} & _WITH_A_VARIABLE
    for each in (readings, [reading for doc in after.docs for reading in doc.readings()]):
        said_at = {entry.key_span for name, _, entry in each if name in wanted}
        free |= {name for name, _, entry in each if entry.key_span in said_at}  # one key says both
    python = (doc for doc in before.docs if doc.form == "python")
    constants = {e.value_span for doc in python for name, _, e in doc.readings() if e.shared and name in wanted}
    free |= {name for name, entry in before.stated_outside() if entry.shared and entry.value_span in constants}
    new_ones = [n for n in new if n not in old and n in _NOT_BY_THE_WAY and n not in free and not is_off(n, new[n])]
    changed = new_ones + [
        n for n in old if n not in free and n[:4] != "env." and not same(_shape(old[n]), _shape(new.get(n)))
    ]
    if changed == ["grad_accum"] and "micro_batch" in wanted and _in_all(old) == _in_all(new):
        return []  # it follows from a total that stays
    if changed == ["offload"] and "sharding" in wanted and set(new.get("offload", ())) < set(old["offload"]):
        return []  # what one way of sharding offloads, another does not
    return changed


def _shape(value: Any) -> Any:
    """A model's sizes without the longest text it takes, for which the length of samples may be a variable's too."""
    return {k: v for k, v in value.items() if k != "max_position_embeddings"} if isinstance(value, Mapping) else value


def _in_all(said: Mapping[str, Any]) -> Any:
    accumulated = said.get("grad_accum")
    return accumulated and accumulated * said.get("micro_batch", 0)


def _said_still(before: Text, after: Text, wanted: Mapping[str, Any]) -> Iterator[str]:
    """The fields of one value that a key said before and says still, beside the new one that says otherwise."""
    for doc, now in zip(before.docs, after.docs, strict=False):
        changed = (
            doc.form not in ("python", "ini") and before.text[doc.start : doc.end] != after.text[now.start : now.end]
        )
        view = doc.view()
        for name, value, entry in doc.readings() if changed else ():
            key = next((k for k in view if view[k] is entry), "") if name in wanted.keys() & _OF_ONE_KEY else ""
            kept = now.view().get(key) if key and not same(value, wanted[name]) else None
            if kept is not None and str(kept.value) == str(entry.value):
                yield name


def _refused(before: Text, after: Text, wanted: Mapping[str, Any]) -> dict[str, str]:
    """The changes whose result the framework refuses, or for which there are too few ranks, and what is needed."""
    bad: dict[str, str] = {}
    old = {need for doc in before.docs for need in _broken(doc)}
    for doc in after.docs:
        for need in _broken(doc):
            if need not in old:
                about = [name for name in wanted if not need.keys.isdisjoint(keys_for(doc, name))]
                bad.update(dict.fromkeys(about or wanted, f"needs {need.text}"))
    for doc, was in zip(after.docs, before.docs, strict=False):
        levels = doc.table.levels() if doc.table is not None else ()
        for keys in (keys for level in levels for keys in level.products):
            about = [name for name in wanted if not keys_for(doc, name).isdisjoint(keys)]
            completed = all(key in doc.view() for key in keys) and not all(key in was.view() for key in keys)
            now = _proportion(doc, keys)
            undivided = _undivided(doc, keys) and not _undivided(was, keys)
            if about and (undivided or (completed if now is None else _proportion(was, keys) != now)):
                bad.update(dict.fromkeys(about, f"needs {keys[0]}=*"))
    if _no_room(after, before):
        bad.update(dict.fromkeys(wanted.keys() & _LENGTHS, "needs prompt_len <= seq_len"))
    ranks, needed = _ranks(after.values), _split_over(after.values)
    if ranks and needed > ranks and _split_over(before.values) <= (_ranks(before.values) or needed):
        each = -(-needed // int(after.values.get("nodes") or 1))
        bad.update(dict.fromkeys((n for n in wanted if n in SIZES), f"needs gpus={each}"))
    return bad


_LENGTHS: Final = frozenset(("prompt_len", "seq_len"))


def _no_room(after: Text, before: Text) -> bool:
    """Whether a changed text leaves no room behind the prompt, where prompt and answer are counted together."""
    now, was = (
        [text.values[n] for n in sorted(_LENGTHS) if isinstance(text.values.get(n), int)] for text in (after, before)
    )
    return len(now) == len(_LENGTHS) and now[0] > now[1] and now != was and not (len(was) > 1 and was[0] > was[1])


def _broken(doc: Doc) -> list[Need]:
    view = doc.view()
    if doc.table is not None and doc.env:  # what is a flag may be a variable of the same name
        names = doc.table.names
        env = [replace(e, key=e.key.lower(), style="flag") for e in doc.env if e.key.lower() in names]
        view = View([*env, *view.values()], form=doc.form, table=doc.table, programs=doc.programs)
    return [need for level in (doc.table.levels() if doc.table else ()) for need in level.needs if need.broken(view)]


def _proportion(doc: Doc, keys: Sequence[str]) -> float | None:
    """The first key's number by the product of the others'; ``None`` where one is not stated."""
    total, *others = (number(doc.view().value(key)) for key in keys)
    return total / math.prod(o for o in others if o) if total and all(others) else None


def keys_for(doc: Doc, name: str) -> set[str]:
    """The keys by which a piece's framework says a field."""
    keys, groups = doc.table.rows(name) if doc.table is not None else ([], [])
    return {norm(n) for names in (*(k.names for k in keys), *(g.names for g in groups)) for n in names}


def _undivided(doc: Doc, keys: Sequence[str]) -> bool:
    """Whether the first key's number, of all ranks together, is no multiple of what the others make of one."""
    total, *others = (number(doc.view().value(key)) for key in keys)
    return total is not None and total % math.prod(o for o in others if o) != 0


SIZES: Final = ("tp", "pp", "cp", "gpus", "nodes", "world")


def _split_over(said: Mapping[str, Any]) -> int:
    """The ranks that hold one copy of the model."""
    return math.prod(said[n] for n in ("tp", "pp", "cp") if isinstance(said.get(n), int) and said[n] > 0)


def _ranks(said: Mapping[str, Any]) -> int | None:
    """How many ranks a text states."""
    if isinstance(said.get("world"), int):
        return int(said["world"])
    gpus = said.get("gpus")
    return gpus * int(said.get("nodes") or 1) if isinstance(gpus, int) else None
