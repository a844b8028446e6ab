"""Writing job fields into a person's own file, in its framework's keys: only the lines in question differ.

Each change goes through the same tables that read the file; after every edit the text is read again, so the result is
what the reader sees, not what the writer hoped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from oomdoc.intake.configs.analysis import MAX_CHARS, Doc, analyse
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.environment import set_variable
from oomdoc.intake.configs.key_choice import writes_for
from oomdoc.intake.configs.launch import launch_facts
from oomdoc.intake.configs.placing import apply_write
from oomdoc.intake.configs.read_back import as_counted, breaks, has_use, is_off, same, says, unified
from oomdoc.intake.configs.segments import form_of
from oomdoc.intake.configs.table import norm
from oomdoc.intake.configs.values import number
from oomdoc.intake.configs.wordlist import words
from oomdoc.intake.notebooks import is_notebook, notebook_text, written_back
from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.frameworks import ENGINES, LAUNCHERS
from oomkb.memory.vocabulary import VOCABULARY, normalise

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Patched:
    """A patched text. ``unplaced`` names the changes that no key of the file's framework can say, with the reason.

    Reasons: ``unknown-framework`` (whose keys would be guessed), ``no-document`` (nothing to change was recognised),
    ``no-key`` (the framework has no such key, or the file no place that is known to take it), ``not-read-back``
    (written, the file would say otherwise, or more than was asked for would change), ``from-argument`` (the script is
    given it when it is run), ``without-use`` (the run that the file describes makes no use of it), ``not-a-value``,
    ``in-sentence`` (it stands in a sentence, in no line of a configuration or command). What is not placed leaves the
    text as it was.
    """

    text: str
    diff: str = ""
    unplaced: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    error: str | None = None
    framework: str = ""
    """Whose keys were written, or ``unknown``."""


def _canonical(name: str, value: Any) -> Any:
    """The canonical word of a value (``"flash_attention_2"`` → ``flash2``)."""
    if value is None:
        return None
    if name == "offload":
        items = [value] if isinstance(value, str) else list(value)
        return [normalise("offload", v) for v in items if v not in ("none", "")]
    if name == "grad_ckpt" and isinstance(value, bool):
        return value
    return normalise(name, value) if name in VOCABULARY else value


@lru_cache(maxsize=64)
def _analysed(filename: str, text: str, framework: str | None) -> tuple[Doc, ...]:
    """As :func:`analyse`: the fields of a plan, and the plans of a diagnosis, go into the same few texts."""
    return tuple(analyse(filename, text, framework))


def _candidates(docs: Sequence[Doc]) -> list[tuple[int, Doc]]:
    """The documents a change may go into, the run itself before launchers' files and scattered keys."""

    def rank(item: tuple[int, Doc]) -> tuple[int, int, int]:
        _, doc = item
        launcher = doc.table is not None and doc.table.name in LAUNCHERS
        return (2 if doc.form == "ini" else 1 if launcher else 0, -len(doc.readings()), -len(doc.entries))

    return sorted(((i, d) for i, d in enumerate(docs) if d.table is not None), key=rank)


def _serves(doc: Doc) -> bool:
    """Whether a command starts a server of a model that it names."""
    engine = doc.form == "shell" and doc.table is not None and doc.table.name in ENGINES
    return engine and "bench" not in doc.programs and any(name == "model" for name, _, _ in doc.readings())


def _one(text: str, filename: str, framework: str | None, name: str, value: Any) -> str | None:
    """The text with one change made, or ``None`` where no key says it."""
    docs = _analysed(filename, text, framework)
    main = next((index for index, doc in _candidates(docs) if doc.form == "shell"), None)
    options = []
    for index, doc in _candidates(docs):
        found = None if doc.usage else writes_for(doc, doc.view(), name, value)
        elsewhere = doc.form == "shell" and index != main and doc.table is not None and doc.table.name not in LAUNCHERS
        if found is not None and not (found[0] and elsewhere):  # a smaller command beside the run is none of its own
            options.append((found[0], index, found[1]))
    if len(list(filter(_serves, docs))) > 1:
        return None  # of several servers nobody says which is meant
    for fits in (0, 1):
        for level, index, writes in options:
            if level == fits:
                done = _write_all(text, filename, framework, index, writes)
                if done is not None:
                    return done
    return None


def _write_all(text: str, filename: str, framework: str | None, index: int, writes: Mapping[str, Any]) -> str | None:
    for key, value in writes.items():
        docs = _analysed(filename, text, framework)
        if index >= len(docs):
            return None
        done = apply_write(text, docs[index], key, value)
        if done is None:
            return None
        text = done
    return text


def _launch(text: str, filename: str, framework: str | None, name: str, value: Any) -> str | None:
    """Numbers of processes and machines, where a launcher's flag or variable states them."""
    for doc in _analysed(filename, text, framework):
        for found, _, entry in launch_facts(doc.entries, doc.env):
            if found == name and (number(entry.value) is not None or entry.key.endswith("VISIBLE_DEVICES")):
                if entry.key.endswith("VISIBLE_DEVICES"):
                    value = ",".join(map(str, range(int(value))))
                start, end = entry.value_span
                return text[:start] + str(value) + text[end:]
    return None


@lru_cache(maxsize=64)
def _values(text: str, filename: str, framework: str | None) -> Mapping[str, Any]:
    """What the text says, field by field; the document read first wins, as the patch went there first."""
    out: dict[str, Any] = {}
    docs = _analysed(filename, text, framework)
    for _, doc in _candidates(docs):
        if doc.table is not None:
            out.setdefault("framework", doc.table.name)
        for name, value, _ in doc.readings():
            out.setdefault(name, value)
        for name, value, _ in launch_facts(doc.entries, doc.env):
            out.setdefault(name, value)
    for doc in docs:
        for name, value, _ in launch_facts(doc.entries, doc.env):
            out.setdefault(name, value)
        for entry in doc.env:
            out.setdefault(f"env.{entry.key}", entry.value)
    return MappingProxyType(out)


_ARGUMENT: Final = re.compile(r"[\"']?\$(?:[0-9]|\{[0-9]{1,2}\})")
"""A value that the script is given when it is run: to write one in its place would take the argument away."""
_NOTHING: Final = "none of the changes can be written into this file"
_ORDER: Final = ("framework", "method", "quant", "objective")


def patch(text: str, *, filename: str, framework: str | None = None, changes: Mapping[str, Any]) -> Patched:
    """Write job fields into a config, command or script.

    :param changes: (dotted) job field -> new value; ``None`` takes the setting out. ``env.NAME`` sets a variable.

    Comments, order, quoting, line endings and every other line stay as they are.
    """
    if len(text) > MAX_CHARS:
        return Patched(text, error="the file is too large to be patched")
    if is_notebook(filename, text):
        return _in_notebook(text, filename, framework, changes)
    original = text
    unplaced: dict[str, str] = {}
    wanted: dict[str, Any] = {}
    for name in sorted(changes, key=lambda n: _ORDER.index(n) if n in _ORDER else len(_ORDER)):
        try:
            value = _canonical(name, changes[name])
        except JobError:
            unplaced[name] = "not-a-value"
            continue
        if name in ("framework", "versions", "gpu", "capacity_gib"):
            unplaced[name] = "no-key"
            continue
        given = [e for e in _left_open(text, filename, framework, name) if _ARGUMENT.match(text, *e.value_span)]
        done = None if given else _change(text, filename, framework, name, value)
        if done is None:
            unplaced[name] = "from-argument" if given else _why_not(_analysed(filename, text, framework))
            continue
        if not (changes.get("method") or changes.get("objective") or _used(text, filename, framework, name, value)):
            unplaced[name] = "without-use"
            continue
        text, wanted[name] = done, value
    bad = _misread(original, text, filename, framework, wanted) if wanted else {}
    if not bad and breaks(original, text, form_of(filename)):
        bad = dict.fromkeys(wanted, "not-read-back")
    if (
        not bad
        and form_of(filename) is None
        and _changes_sentence(original, text, _analysed(filename, original, framework))
    ):
        bad = dict.fromkeys(wanted, "in-sentence")
    if bad:
        kept = {name: value for name, value in changes.items() if name in wanted and name not in bad}
        again = (
            patch(original, filename=filename, framework=framework, changes=kept)
            if kept
            else Patched(original, error=_NOTHING)
        )
        return replace(again, unplaced=MappingProxyType({**unplaced, **bad, **again.unplaced}))
    error = None if wanted or not changes else _NOTHING
    return Patched(
        text,
        unified(original, text, filename),
        MappingProxyType(unplaced),
        error,
        _named(_analysed(filename, original, framework)),
    )


_QUOTED: Final = re.compile(r"\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|(?:^|\s)#.*")
_GOES_ON: Final = re.compile(r"[\w)][.,;!?]\s+[A-Za-z]|[，。；、]|(?:\s[a-z]{2,20}){4}")
_PROMPTS: Final = " \t$>%!#`*-"


def _changes_sentence(before: str, after: str, docs: Sequence[Doc]) -> bool:
    """Whether a changed line of pasted text is a sentence, or holds a command within one."""
    kept, low = set(after.splitlines(keepends=True)), 0
    for line in before.splitlines(keepends=True):
        high = low + len(line)
        for doc in docs if line not in kept else ():
            if doc.form not in ("shell", "ini") or doc.end <= low or doc.start >= high:
                continue
            begins = (
                before[before.rfind("\n", 0, doc.start) + 1 : doc.start].strip(_PROMPTS) if doc.form == "shell" else ""
            )
            options = line[max(0, line.find(" -")) :] if doc.form == "shell" else line
            if begins or _GOES_ON.search(_QUOTED.sub("", options)):
                return True
        low = high
    return False


def _in_notebook(text: str, filename: str, framework: str | None, changes: Mapping[str, Any]) -> Patched:
    """As :func:`patch`, in the strings of a notebook's cells."""
    plain = notebook_text(text)
    done = patch(plain or "", filename="notebook", framework=framework, changes=changes)
    raw = written_back(text, plain, done.text) if plain is not None and done.error is None else None
    if raw is None:
        unplaced = done.unplaced if done.error else dict.fromkeys(changes, "no-key")
        return replace(done, text=text, diff="", unplaced=unplaced, error=done.error or _NOTHING)
    return replace(done, text=raw, diff=unified(text, raw, filename))


def _named(docs: Sequence[Doc]) -> str:
    """Whose keys the file holds."""
    found = next((doc.table.name for _, doc in _candidates(docs) if doc.table is not None), "")
    return found or ("unknown" if any(doc.unknown for doc in docs) else "")


def _why_not(docs: Sequence[Doc]) -> str:
    if any(doc.table is not None for doc in docs):
        return "no-key"
    return "unknown-framework" if any(doc.unknown for doc in docs) else "no-document"


_LENGTHS: Final = frozenset(("seq_len", "prompt_len", "completion_len"))
"""Fields that one variable may state together; who changes it changes them all."""
_UNRELATED: Final = _LENGTHS | words(
    """
    model micro_batch tp pp cp ep generations max_pixels rollout.tensor_parallel rollout.gpu_memory_utilization
    serving.max_model_len serving.gpu_memory_utilization
    """
)
"""Fields that no change of another one may alter."""
_OF_ONE_KEY: Final = _UNRELATED | words("attention optimizer grad_accum lora.r param_dtype")
"""Fields that one key says."""


def _misread(
    original: str, text: str, filename: str, framework: str | None, wanted: Mapping[str, Any]
) -> dict[str, str]:
    """The changes that the patched text does not say, or all of them where it says more than they ask for."""
    before, said = _values(original, filename, framework), _values(text, filename, framework)
    bad: dict[str, str] = {}
    for name, value in wanted.items():
        if name == "method" and wanted.get("quant") is not None and said.get(name) in ("lora", "qlora"):
            continue  # the storage of the base decides between the two
        if not says(said, name, value):
            bad[name] = "not-read-back"
    written = {as_counted(before, name, value)[0] for name, value in wanted.items()} | set(wanted)
    bad.update(dict.fromkeys(_said_still(original, text, filename, framework, wanted), "not-read-back"))
    tied = {n for d in _analysed(filename, original, framework) for n, _, e in d.readings() if e.shared} & _LENGTHS
    altered = [n for n in _UNRELATED if n in before and n not in written | tied and not same(before[n], said.get(n))]
    return bad or (dict.fromkeys(wanted, "not-read-back") if altered else {})


def _said_still(
    original: str, text: str, filename: str, framework: str | None, wanted: Mapping[str, Any]
) -> Iterator[str]:
    """The fields of one value that a key said before and says still, beside the new one that says otherwise."""
    docs, later = (_analysed(filename, each, framework) for each in (original, text))
    for doc, now in zip(docs, later, strict=False):
        changed = doc.form not in ("python", "ini") and original[doc.start : doc.end] != text[now.start : now.end]
        view = doc.view()
        for name, value, entry in doc.readings() if changed else ():
            key = next((k for k in view if view[k] is entry), "") if name in wanted.keys() & _OF_ONE_KEY else ""
            kept = now.view().get(key) if key and not same(value, wanted[name]) else None
            if kept is not None and str(kept.value) == str(entry.value):
                yield name


def _change(text: str, filename: str, framework: str | None, name: str, value: Any) -> str | None:
    if name.startswith("env."):
        return set_variable(text, _analysed(filename, text, framework), name[4:], value, filename)
    said = _values(text, filename, framework)
    unset = is_off(value) and "framework" in said and not _left_open(text, filename, framework, name)
    if value is not None and (name in said or unset) and says(said, name, value):
        return text
    name, value = as_counted(said, name, value)
    outside = [entry for found, entry in _stated_outside(text, filename, framework) if found == name]
    if any(entry.style == "env" for entry in outside) or (outside and not _has_key(text, filename, framework, name)):
        return _launch(text, filename, framework, name, value)
    done = _one(text, filename, framework, name, value)
    if done is None and name in ("gpus", "nodes", "world"):
        done = _launch(text, filename, framework, name, value)
    return done


def _used(text: str, filename: str, framework: str | None, name: str, value: Any) -> bool:
    said = _values(text, filename, framework)
    return "framework" not in said or value is None or has_use(said, *as_counted(said, name, value))


def _left_open(text: str, filename: str, framework: str | None, name: str) -> list[Entry]:
    """The settings of a field whose values the text does not say: what its variables or arguments hold."""
    found = []
    for _, doc in _candidates(_analysed(filename, text, framework)):
        keys, groups = doc.table.rows(name) if doc.table is not None else ([], [])
        view = doc.view()
        names = {norm(n) for names in (*(k.names for k in keys), *(g.names for g in groups)) for n in names}
        found += [view[n] for n in names if n in view and not view[n].resolved]
    return found


def _has_key(text: str, filename: str, framework: str | None, name: str) -> bool:
    """Whether a document says a field by a key of its table."""
    return any(found == name for doc in _analysed(filename, text, framework) for found, _, _ in doc.readings())


def _stated_outside(text: str, filename: str, framework: str | None) -> list[tuple[str, Entry]]:
    """The fields that launchers' flags and the environment state."""
    docs = _analysed(filename, text, framework)
    return [(name, entry) for doc in docs for name, _, entry in launch_facts(doc.entries, doc.env)]


def patch_batch_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """One line of ``oomdoc fix --batch``: ``{"id", "framework", "filename", "text", "set"}`` to its result."""
    done = patch(
        str(row["text"]),
        filename=str(row.get("filename") or "config"),
        framework=row.get("framework") or None,
        changes=row.get("set") or {},
    )
    result: dict[str, Any] = {"id": row.get("id"), "text": done.text, "diff": done.diff, "error": done.error}
    result["framework"] = done.framework or None
    if done.unplaced:
        result["unplaced"] = dict(done.unplaced)
    return result
