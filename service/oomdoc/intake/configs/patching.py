"""Writing job fields into a person's own file, in its framework's keys: only the lines in question differ.

Each change goes through the same tables that read the file; after every edit the text is read again, so the result is
what the reader sees, not what the writer hoped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Final

from oomdoc.intake.configs.analysis import MAX_CHARS, Doc
from oomdoc.intake.configs.companions import LINKS
from oomdoc.intake.configs.document import SURE
from oomdoc.intake.configs.environment import set_variable
from oomdoc.intake.configs.key_choice import writes_for
from oomdoc.intake.configs.launch import counted_as, every_statement
from oomdoc.intake.configs.placing import apply_write
from oomdoc.intake.configs.read_back import as_counted, breaks, is_off, says, stored_otherwise, unified
from oomdoc.intake.configs.segments import form_of
from oomdoc.intake.configs.table import norm
from oomdoc.intake.configs.whole_text import SIZES, Text, keys_for, misread
from oomdoc.intake.notebooks import is_notebook, notebook_text, written_back
from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.frameworks import ENGINES, LAUNCHERS
from oomkb.kept import lazy
from oomkb.memory.mode import VOCABULARY, normalise

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Patched:
    """A patched text. ``unplaced`` names the changes that no key of the file's framework can say, with the reason.

    Reasons: ``unknown-framework`` (whose keys would be guessed), ``no-document`` (nothing to change was recognised),
    ``no-key`` (the framework has no such key, or the file no place that is known to take it), ``not-read-back``
    (written, the file would say otherwise, or more than was asked for would change), ``from-argument`` (the script is
    given it when it is run), ``auto`` (it is what another file says), ``companion`` (it may be set in a file that
    this one names), ``stored`` (the model's files are in another form), ``without-use`` (the run that the
    file describes makes no use of it), ``not-a-value``, ``in-sentence`` (it stands in a sentence, in no line of a
    configuration or command), ``needs KEY=VALUE`` (the framework takes it only beside that). What is not placed leaves
    the text as it was.
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


def _runs(doc: Doc) -> bool:
    """Whether a command starts a run of a model that it names, or an engine with settings of its own."""
    command = doc.form == "shell" or (doc.form == "yaml" and doc.programs.strip() != "")
    started = command and doc.table is not None and doc.table.name not in LAUNCHERS
    engine = started and doc.table is not None and doc.table.name in ENGINES
    said = {name for name, _, _ in doc.readings()}
    return started and "bench" not in doc.programs and ("model" in said or (engine and len(said) > 1))


def _one(source: Text, name: str, value: Any) -> Text | None:
    """The text with one change made, or ``None`` where no key says it."""
    docs = source.docs
    runs = [doc for doc in docs if _runs(doc) or doc.unknown]
    stated = [doc for doc in runs if any(found == name for found, _, _ in doc.readings())]
    if len(runs) > 1 and len(stated) != 1:
        # Of several runs nobody says which is meant, unless all are meant.
        return _in_each(source, name, value) if len(stated) == len(runs) and name not in SIZES else None
    main = next((index for index, doc in source.candidates if doc.form == "shell"), None)
    options = []
    for index, doc in source.candidates:
        found = writes_for(doc, doc.view(), name, value)
        elsewhere = doc.form == "shell" and index != main and doc.table is not None and doc.table.name not in LAUNCHERS
        # A smaller command beside the run is none of its own, and what another piece says is not added a second time.
        if found is not None and not (found[0] and (elsewhere or _has_own_key(docs, doc, name))):
            options.append((found[0], index, found[1]))
    for fits in (0, 1):
        for level, index, writes in options:
            if level == fits:
                done = _write_all(source, index, writes)
                if done is not None:
                    return done
    return None


def _in_each(source: Text, name: str, value: Any) -> Text | None:
    """The text with a change made in each of several runs, which all say the same of the field by a key of theirs."""
    said = [[v for found, v, _ in doc.readings() if found == name] for doc in source.docs if _runs(doc) or doc.unknown]
    done: Text | None = source if all(each == said[0] for each in said) else None
    for index, doc in enumerate(source.docs):
        if done is not None and (_runs(doc) or doc.unknown):
            again = done.docs[index] if index < len(done.docs) else doc
            found = writes_for(again, again.view(), name, value)
            done = _write_all(done, index, found[1]) if found is not None and found[0] == 0 else None
    return done


def _has_own_key(docs: Sequence[Doc], doc: Doc, name: str) -> bool:
    """Whether a piece around one (what a wrapper of an engine takes) has a key of the field's own name (``tp: 1``)."""
    around = (d for d in docs if d is not doc and d.table is None and d.form == doc.form)
    return any(norm(e.key).rsplit(".", 1)[-1] == name for d in around for e in d.entries)


def _write_all(source: Text, index: int, writes: Mapping[str, Any]) -> Text | None:
    for key, value in writes.items():
        done = apply_write(source.text, source.docs[index], key, value) if index < len(source.docs) else None
        if done is None:
            return None
        source = replace(source, text=done)
    return source


_COUNTED: Final = ("gpus", "nodes", "world")


def _launch(source: Text, name: str, value: Any, was: Any) -> Text | None:
    """What launchers and the environment are told, wherever a flag, a request or a variable states the old value."""
    stated = [reading for doc in source.docs for reading in every_statement(doc.entries, doc.env)]
    places = {e.value_span: e for found, count, e in stated if found == name and count == was}
    text = source.text
    for (start, end), entry in sorted(places.items(), reverse=True):
        new = counted_as(entry, text[start:end], was, value)
        if new is None or not entry.resolved:
            return None
        text = text[:start] + new + text[end:]
    return replace(source, text=text) if places else None


_ARGUMENT: Final = lazy(r"[\"']?\$(?:[0-9]|\{[0-9]{1,2}\})")
"""A value that the script is given when it is run: to write one in its place would take the argument away."""
_NOTHING: Final = "none of the changes can be written into this file"
_ORDER: Final = ("framework", "method", "quant", "objective")


def patch(
    text: str, *, filename: str, framework: str | None = None, changes: Mapping[str, Any], first_line: int = 1
) -> Patched:
    """Write job fields into a config, command or script.

    :param changes: (dotted) job field -> new value; ``None`` takes the setting out. ``env.NAME`` sets a variable.
    :param first_line: where the text begins in its file.

    Comments, order, quoting, line endings and every other line stay as they are.
    """
    if len(text) > MAX_CHARS:
        return Patched(text, error="the file is too large to be patched")
    if is_notebook(filename, text):
        return _in_notebook(text, filename, framework, changes)
    source = original = Text(text, filename, framework)
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
        given = source.left_open(name)
        asked = any(_ARGUMENT.match(source.text, *e.value_span) for e in given)
        elsewhere = "from-argument" if asked else "auto" if source.taken_over(given) else ""
        if name == "optimizer" and _may_stand_in_companion(source):
            elsewhere = "companion"
        done = None if elsewhere else _change(source, name, value)
        if done is None:
            unplaced[name] = elsewhere or _why_not(source.docs)
        elif name == "quant" and stored_otherwise(source.values, value):
            unplaced[name] = "stored"
        elif not (changes.get("method") or changes.get("objective") or source.uses(name, value)):
            unplaced[name] = "without-use"
        else:
            source, wanted[name] = done, value
    unplaced = {name: why for name, why in unplaced.items() if why != "no-key" or not _says_so(source, name, changes)}
    bad = (_apart(source, wanted, unplaced, changes) or _wrong(original, source, wanted)) if wanted else {}
    if bad:
        kept = {name: value for name, value in changes.items() if name in wanted and name not in bad}
        again = (
            patch(text, filename=filename, framework=framework, changes=kept, first_line=first_line)
            if kept
            else Patched(text, error=_NOTHING, framework=_named(original))
        )
        return replace(again, unplaced=MappingProxyType({**unplaced, **bad, **again.unplaced}))
    error = None if wanted or not changes else _NOTHING
    diff = unified(text, source.text, filename, first_line)
    return Patched(source.text, diff, MappingProxyType(unplaced), error, _named(original))


def _says_so(source: Text, name: str, changes: Mapping[str, Any]) -> bool:
    """Whether another change has said a field as well: a rank that says that there are adapters."""
    return changes[name] is not None and name in source.values and says(source.values, name, changes[name])


def _apart(
    source: Text, wanted: Mapping[str, Any], unplaced: Mapping[str, str], changes: Mapping[str, Any]
) -> dict[str, str]:
    """The changes that mean something else without one that could not be made.

    Adapters that the framework was not told to train; a smaller batch whose accumulation, which has a key of its own,
    stays as it is.
    """
    bad: dict[str, str] = {}
    if "method" in unplaced:
        bad |= {name: f"needs method={changes['method']}" for name in wanted if name.startswith("lora.")}
    if "grad_accum" in unplaced and "micro_batch" in wanted and any(keys_for(d, "grad_accum") for d in source.docs):
        bad["micro_batch"] = f"needs grad_accum={changes['grad_accum']}"
    return bad


def _may_stand_in_companion(source: Text) -> bool:
    """Whether the optimizer, of which nothing is said here, may be set in a file of an engine that this one names."""
    files = (e for doc in source.docs for e in doc.entries if norm(e.key) in LINKS)
    return not source.has_key("optimizer") and any(str(e.value).endswith(".json") for e in files)


def _wrong(before: Text, after: Text, wanted: Mapping[str, Any]) -> dict[str, str]:
    """The changes that a patched text must not be given back with, and why."""
    form = form_of(before.filename)
    bad = misread(before, after, wanted)
    if not bad and breaks(before.text, after.text, form):
        bad = dict.fromkeys(wanted, "not-read-back")
    if not bad and form is None and _changes_sentence(before.text, after.text, before.docs):
        bad = dict.fromkeys(wanted, "in-sentence")
    return bad


_QUOTED: Final = lazy(r"\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|(?:^|\s)#.*")
_GOES_ON: Final = lazy(r"[\w)][.,;!?]\s+[A-Za-z]|[，。；、]|(?:\s[a-z]{2,20}){4}")
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


def _named(source: Text) -> str:
    """Whose keys the file holds."""
    found = next((doc.table.name for _, doc in source.candidates if doc.table is not None), "")
    return found or ("unknown" if any(doc.unknown for doc in source.docs) else "")


def _why_not(docs: Sequence[Doc]) -> str:
    if any(doc.table is not None for doc in docs):
        return "no-key"
    return "unknown-framework" if any(doc.unknown for doc in docs) else "no-document"


def _change(source: Text, name: str, value: Any) -> Text | None:
    if name.startswith("env."):
        text = set_variable(source.text, source.docs, name[4:], value, source.filename)
        return None if text is None else replace(source, text=text)
    said = source.values
    sure = any(doc.table is not None and doc.probability >= SURE for _, doc in source.candidates)
    unset = is_off(name, value) and sure and not source.left_open(name)
    if value is not None and (name in said or unset) and says(said, name, value):
        return source
    name, value = as_counted(said, name, value)
    outside = [entry for found, entry in source.stated_outside() if found == name]
    ours = any(entry.style != "env" for entry in outside) or not outside
    done = _one(source, name, value) if ours and (source.has_key(name) or not outside) else None
    if outside or name in _COUNTED:
        done = _launch(done or source, name, value, said.get(name)) or done
    if done is None or name != "nodes" or "gpus" in said or not isinstance(said.get("world"), int):
        return done
    ranks = said["world"] * value // (said.get("nodes") or 1)
    return _change(done, "world", ranks)  # as many on each machine as before


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
