"""A text to its documents: pieces of configuration with their framework's table applied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from oomdoc.intake.configs.architecture import described_model, described_pair
from oomdoc.intake.configs.entry import Entry, FormError, Fragment
from oomdoc.intake.configs.forms.flags import parse_shell
from oomdoc.intake.configs.forms.flow import parse_flow
from oomdoc.intake.configs.forms.loose import parse_loose
from oomdoc.intake.configs.forms.python import parse_python
from oomdoc.intake.configs.forms.toml import parse_toml
from oomdoc.intake.configs.forms.yaml import parse_yaml
from oomdoc.intake.configs.guessing import guessed, of_other_role
from oomdoc.intake.configs.launch import LAUNCH_KEYS
from oomdoc.intake.configs.nesting import dockerfile, embedded
from oomdoc.intake.configs.recognise import ENOUGH, Recognition, probability_of, recognise
from oomdoc.intake.configs.registry import all_names, table, tables
from oomdoc.intake.configs.segments import Segment, segments
from oomdoc.intake.configs.table import Reading, Table, View, norm

__all__ = ["MAX_CHARS", "Doc", "analyse"]

MAX_CHARS: Final = 1_500_000
_BUDGET: Final = 150_000
"""Characters of one source that are read as configuration; nobody's configuration is larger."""
_MOST_ENTRIES: Final = 8_000
"""Settings of one source, likewise."""
_MAX_DOCS: Final = 400
_PROGRAM_CHARS: Final = 8_000
_LAUNCHERS: Final = ("accelerate", "deepspeed", "fsdp")
"""What starts other frameworks' scripts: to be given as one says nothing against what a script is recognised as."""
_DOCSTRING: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n){0,80}[ \t]*[rR]?(\"{3}|'{3})")
_BRACE: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n){0,200}[ \t]*\{(?![{%])")
_TELLING: Final = 8
"""Characters of a key that means the same in whatever section it stands."""
_KEY_CLEAN: Final = re.compile(r"\[[0-9]*\]|^\+{1,2}|^~")


@dataclass(slots=True)
class Doc:
    """One piece of configuration, its framework's table, and what it says."""

    table: Table | None
    form: str
    start: int
    end: int
    entries: list[Entry]
    env: list[Entry] = field(default_factory=list)
    programs: str = ""
    whole_file: bool = False
    notes: list[tuple[str, int]] = field(default_factory=list)
    fenced: bool = False
    array: str = ""
    uses: frozenset[str] = frozenset()
    """Of a shell command: see :class:`~oomdoc.intake.configs.entry.Fragment`."""
    marks: tuple[bool, int] = (False, 0)
    """Whether a program, and how many keys, spoke for the table's framework alone."""
    probability: float = 1.0
    """How sure the table is the right one; below a half there is none (``unknown``)."""
    unknown_keys: float = 0.0
    """Share of the keys that the table (or the one that came nearest) does not know."""
    unknown: bool = False
    """Whether this configures a run of a framework that is not known."""

    def view(self) -> View:
        """The settings by key, under the names the table may know them by."""
        shown = list(known_as(self.entries, self.table))
        # A key that counts by its last part yields to one that stands there whole.
        short = ["." in e.key and "." not in s.key for e, s in zip(self.entries, shown, strict=True)]
        if self.table is not None and self.table.ignores:
            short = [cut for cut, e in zip(short, shown, strict=True) if e.key not in self.table.ignores]
            shown = [e for e in shown if e.key not in self.table.ignores]
        ordered = [s for s, cut in zip(shown, short, strict=True) if cut] + [
            s for s, cut in zip(shown, short, strict=True) if not cut
        ]
        return View(
            ordered,
            form=self.form,
            framework=self.table.name if self.table else "",
            programs=self.programs,
        )

    def readings(self) -> list[Reading]:
        """(field, value, entry) of everything the table understands; a key's own row before a base's."""
        if self.table is None:
            return list(guessed(self.entries)) if self.unknown else []
        view = self.view()
        out: list[Reading] = []
        seen: set[str] = set()
        for level in self.table.levels():
            _read_level(level, view, out, seen)
        if "model" not in seen:
            described = described_pair(self.entries, view) or described_model(view)
            if described is not None:
                out.append(described)
        return out


def _read_level(level: Table, view: View, out: list[Reading], seen: set[str]) -> None:
    """What a table's own rows say, fields that are settled already left out."""
    found: list[Reading] = []
    for key in level.keys:
        if any(name == key.field for name, _, _ in found):
            continue
        for name in key.names:
            entry = view.get(norm(name))
            if entry is None or not (entry.resolved or key.field == "model"):
                continue
            value = key.codec.read(entry.value)
            if value is not None:
                found.append((key.field, value, entry))
                break
    for group in level.groups:
        for field_name, value, entry in group.read(view):
            taken = any(n == field_name for n, _, _ in found)
            if value is not None and not taken and (entry.resolved or field_name == "model"):
                found.append((field_name, value, entry))
    new = [r for r in found if r[0] not in seen]
    out += new
    seen.update(r[0] for r in new)


def _clean(key: str) -> str:
    """A key without positions in lists and the marks of Hydra's overrides."""
    return norm(_KEY_CLEAN.sub("", key) if "[" in key or key[:1] in ("+", "~") else key)


def known_as(entries: Iterable[Entry], owner: Table | None) -> Iterator[Entry]:
    """Entries under the keys the table lists: without leading path parts it lets one leave out."""
    if owner is None:
        yield from entries
        return
    names = owner.known()
    for entry in entries:
        key = _clean(entry.key)
        if entry.style not in ("kwarg", "call"):
            key = _named_in(key, owner, names, pair=entry.style == "pair")
        yield entry if key == entry.key else replace(entry, key=key)


def _named_in(key: str, owner: Table, names: frozenset[str], *, pair: bool) -> str:
    """A key as the table lists it; a key of its own counts before one that is merely known."""
    if key in owner.names():
        return key
    for prefix in owner.prefixes:
        if key.startswith(prefix) and owner.knows(key[len(prefix) :]):
            return key[len(prefix) :]
    if key in names or "." not in key or owner.exact:
        return key
    last = key.rsplit(".", 1)[-1]
    if last in names and (owner.suffix or ("_" in last and len(last) >= _TELLING and pair and not of_other_role(key))):
        return last
    return key


def _parse(text: str, segment: Segment) -> list[Fragment]:
    start, end, form = segment.start, segment.end, segment.form
    if form == "yaml" and (flow := _BRACE.match(text, start, end)) is not None:
        start, form = flow.end() - 1, "json"  # YAML in flow style from end to end
    if form == "yaml":
        entries, blocks = parse_yaml(text, start, end)
        out = [Fragment(form="yaml", start=start, end=end, entries=tuple(entries))]
        return out + embedded(text, entries, blocks)
    if form == "json":
        at = start + len(text[start:end]) - len(text[start:end].lstrip())
        if text[at : at + 1] not in ("{", "["):
            brace = text.find("{", at, end)
            at = brace if brace >= 0 else at
        _, close, found = parse_flow(text, at, end)
        return [Fragment(form="json", start=at, end=close, entries=tuple(found))]
    if form == "toml":
        return [Fragment(form="toml", start=start, end=end, entries=tuple(parse_toml(text, start, end)))]
    if form == "python":
        return [parse_python(text, start, end), *_usage(text, start, end)]
    if form == "shell":
        return _shell(text, segment)
    if form == "dockerfile":
        variables = tuple(e for f in parse_shell(text, start, end).fragments for e in f.env)
        return [*dockerfile(text, start, end), Fragment(form="shell", start=start, end=end, entries=(), env=variables)]
    return []


def _usage(text: str, start: int, end: int) -> list[Fragment]:
    """The commands in the text a script begins with: how it is meant to be run."""
    match = _DOCSTRING.match(text, start, min(end, start + 20_000))
    if match is None:
        return []
    close = text.find(match[1], match.end(), min(end, match.end() + 12_000))
    runs = (s for s in segments("", text[match.end() : close]) if s.form == "shell") if close > 0 else iter(())
    out: list[Fragment] = []
    for run in islice(runs, 8):
        shifted = Segment("shell", run.start + match.end(), run.end + match.end())
        out += [f for f in _shell(text, shifted) if len(f.entries) > 2]
        if out:
            break
    return out


def _shell(text: str, segment: Segment) -> list[Fragment]:
    reading = parse_shell(text, segment.start, segment.end, lenient=not segment.whole_file)
    out = reading.fragments
    for body in reading.heredocs:
        inner = text[body.start : body.end].lstrip()
        form = "json" if inner[:1] == "{" else "python" if re.match(r"(?:import|from) ", inner) else "yaml"
        try:
            out = out + _parse(text, Segment(form, body.start, body.end))
        except FormError:
            continue
    return out


def _fragments(text: str, segment: Segment) -> list[Fragment]:
    if segment.form == "notebook":
        return []
    if segment.form == "loose":
        found = parse_loose(text, segment.start, segment.end, all_names())
        return [Fragment(form="ini", start=segment.start, end=segment.end, entries=tuple(found))] if found else []
    try:
        return _parse(text, segment)
    except FormError:
        found = parse_loose(text, segment.start, segment.end, all_names())
        form = segment.form if segment.form in ("python", "json") else "ini"
        return [Fragment(form=form, start=segment.start, end=segment.end, entries=tuple(found))]  # type: ignore[arg-type]


def _keys(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.off or entry.style == "call":
            continue
        key = _clean(entry.key)
        yield key
        if "." in key:
            yield key.rsplit(".", 1)[-1]


def _doc(fragment: Fragment, segment: Segment) -> Doc:
    scopes = " ".join(dict.fromkeys(e.scope for e in fragment.entries if e.scope and e.scope[0] != "@"))
    programs = (" ".join(fragment.programs) + " " + scopes)[:_PROGRAM_CHARS]
    return Doc(
        table=None,
        form=fragment.form,
        start=fragment.start,
        end=fragment.end,
        entries=list(fragment.entries),
        env=list(fragment.env),
        programs=programs,
        whole_file=segment.whole_file,
        notes=list(fragment.notes),
        fenced=segment.fenced,
        array=fragment.array,
        uses=fragment.uses,
    )


_BATCH: Final = "#SBATCH"


def _submitted(docs: list[Doc]) -> list[Doc]:
    """What a batch job asks for belongs to the first command that it runs."""
    asked = next((d for d in docs if d.array == _BATCH), None)
    if asked is None:
        return docs
    rest = [d for d in docs if d is not asked]
    runs = next((d for d in rest if d.table is not None and not d.array), None)
    if runs is None:
        return docs
    runs.entries = [*asked.entries, *runs.entries]
    return rest


def _assembled(docs: list[Doc]) -> list[Doc]:
    """Commands with the arrays that they take in: what the shell runs is one command."""
    arrays = {d.array: d for d in docs if d.array and d.array != _BATCH}
    docs = _submitted(docs)
    out: list[Doc] = []
    taken: set[str] = set()
    for doc in docs:
        used = [arrays[name] for name in sorted(doc.uses & arrays.keys() - taken)] if not doc.array else []
        if used:
            taken |= {d.array for d in used}
            whole = _joined([*used, doc])
            _recognise(whole)
            out.append(whole)
        else:
            out.append(doc)
    return [d for d in out if d.array not in taken]


def _merge_shell(docs: list[Doc]) -> list[Doc]:
    """Arrays, strings of flags and second commands belong to the command that a script runs."""
    docs = _assembled(docs)
    mains = [d for d in docs if d.table is not None]
    if not docs or len({d.table.name for d in mains if d.table}) > 1:
        return docs
    if not mains:
        joined = _joined(docs)
        _recognise(joined)
        return [joined]
    orphans = [d for d in docs if d.table is None]
    # Several runs of one framework in a file (a sweep): the first is the one the rest is attached to.
    first = _joined([*orphans, mains[0]])
    first.table, first.marks = mains[0].table, mains[0].marks
    return [first, *mains[1:]]


def _recognise(doc: Doc, likely: str | None = None) -> None:
    found = recognise(_keys(doc.entries), doc.programs, tables(), likely)
    doc.table = found.table if found is not None else _fallback(doc)
    doc.marks = (found.command, found.marks) if found is not None else (False, 0)


_JUDGED: Final = frozenset({"yaml", "json", "toml", "shell"})
_FEW: Final = 5
"""Keys under which a piece is a snippet, not the configuration of a run."""
_SAID: Final = 2
"""Fields that make a piece whose framework is unknown the configuration of a run."""


def _judge(doc: Doc, given: Table | None) -> None:
    """How sure the table is; without one, or below a half, the framework is unknown."""
    if doc.form not in _JUDGED or (doc.table is not None and doc.table is given):
        return
    settings = [
        e
        for e in doc.entries
        if not e.off and e.style not in ("call", "item", "env") and e.key[:1] != "@" and e.scope != "sbatch"
    ]
    known = _known(settings, doc.table)
    doc.unknown_keys = 1.0 - sum(known) / len(known) if known else 0.0
    if doc.table is not None:
        doc.probability = probability_of(Recognition(doc.table, *doc.marks), known)
        if doc.probability >= ENOUGH or len(known) < _FEW:
            return
    else:
        doc.probability = 0.0
    if len(known) >= _FEW and len(list(guessed(settings))) >= _SAID:
        doc.table, doc.unknown = None, True
    elif len(known) >= _FEW and doc.table is not None:
        doc.table = None


def _known(settings: list[Entry], owner: Table | None) -> list[bool]:
    """For each key, whether the table knows it."""
    if owner is None:
        names = all_names()
        return [norm(key) in names for key in dict.fromkeys(e.key for e in settings)]
    found = {shown.key: norm(shown.key) for shown in known_as(settings, owner)}
    own = owner.marks | owner.hints | LAUNCH_KEYS
    return [owner.knows(key) or key in own or key.rsplit(".", 1)[-1] in LAUNCH_KEYS for key in found.values()]


def _fallback(doc: Doc) -> Table | None:
    """A launched script nobody knows is most often written on transformers."""
    if doc.form != "shell" or not any(w in doc.programs for w in ("deepspeed", "accelerate", "torchrun", ".py")):
        return None
    base = table("transformers")
    if base is not None and any(k in base.names() for k in _keys(doc.entries)):
        return base
    return table("deepspeed" if "deepspeed" in doc.programs else "accelerate" if "accelerate" in doc.programs else None)


def _joined(docs: list[Doc]) -> Doc:
    ordered = sorted(docs, key=lambda d: d.start)
    return Doc(
        table=None,
        form="shell",
        start=min(d.start for d in docs),
        end=max(d.end for d in docs),
        entries=[e for d in ordered for e in d.entries],
        env=[e for d in ordered for e in d.env],
        programs=" ".join(d.programs for d in ordered)[:_PROGRAM_CHARS],
        whole_file=any(d.whole_file for d in docs),
        fenced=any(d.fenced for d in docs),
        uses=frozenset().union(*(d.uses for d in docs)),
    )


def _within_budget(name: str, text: str, cut: list[int]) -> Iterator[tuple[Segment, list[Fragment]]]:
    """The pieces of a text with what stands in them, as far as the bounds go; ``cut`` gets the offset of the rest."""
    characters, entries, documents, last = _BUDGET, _MOST_ENTRIES, _MAX_DOCS, False
    for found in segments(name, text):
        segment = found
        if characters <= 0 or entries <= 0 or documents <= 0:
            cut.append(segment.start)
            return
        if segment.end - segment.start > characters and segment.form != "loose":
            end = text.rfind("\n", segment.start, segment.start + characters) + 1 or segment.start + characters
            segment = replace(segment, end=max(end, segment.start + 1))
            cut.append(segment.end)
            last = True
        characters -= segment.end - segment.start if segment.form != "loose" else 0
        fragments = _fragments(text, segment)[:documents]
        documents -= max(1, len(fragments))
        entries -= sum(len(fragment.entries) for fragment in fragments)
        yield segment, fragments
        if last:
            return


def analyse(name: str, text: str, framework: str | None = None, cut: list[int] | None = None) -> list[Doc]:
    """The documents of a text, in order; scattered keys last. Never raises for what a person may paste.

    :param framework: what it is known to be (a canonical or common name), where it is.
    :param cut: gets the offset from which nothing was read as configuration, where the text is too large for it.
    """
    cut = [] if cut is None else cut
    if len(text) > MAX_CHARS:
        cut.append(MAX_CHARS)
    text = text[:MAX_CHARS]
    known = table(framework)
    docs: list[Doc] = []
    loose: list[Doc] = []
    for segment, fragments in _within_budget(name, text, cut):
        found = [_doc(f, segment) for f in fragments]
        for doc in found:
            _recognise(doc, known.name if known else None)
        if segment.form == "loose":
            loose += found
        elif segment.form == "shell":
            shell = [d for d in found if d.form == "shell"]
            docs += _merge_shell(shell) + [d for d in found if d.form != "shell"]
        else:
            docs += found
    if known is not None:
        _believe(docs, known)
    for doc in docs:
        _judge(doc, known)
    _beside(docs)
    _attach(docs, loose, known)
    return docs + loose


def _believe(docs: list[Doc], known: Table) -> None:
    """Where the framework is given, documents that nothing speaks for, or only its base, are its."""
    names = known.names()
    for doc in docs:
        if doc.table is known:
            continue
        own = sum(1 for k in _keys(doc.entries) if k in names)
        base = doc.table is not None and any(doc.table is b for b in known.bases)
        if own and (doc.table is None or base):
            doc.table = known
    spoken_for = known.name in _LAUNCHERS and any(d.table is not None for d in docs)
    if docs and not spoken_for and not any(d.table is known for d in docs):
        best = max(docs, key=lambda d: sum(1 for k in _keys(d.entries) if k in names))
        if any(k in names for k in _keys(best.entries)) or len(docs) == 1:
            best.table = known


def _beside(docs: list[Doc]) -> None:
    """Python that only configures adapters belongs to the program beside it, else to the library below all."""
    python = [d for d in docs if d.form == "python"]
    main = next((d.table for d in python if d.table is not None), None) or table("transformers")
    for doc in python:
        if doc.table is None and main is not None and "LoraConfig" in doc.programs:
            doc.table = main


def _attach(docs: list[Doc], loose: list[Doc], known: Table | None) -> None:
    """Scattered keys are read with the table of the documents around them."""
    tables_here = [d.table for d in docs if d.table is not None and d.table.name not in ("deepspeed", "accelerate")]
    fallback = known or (tables_here[0] if tables_here else None)
    for doc in loose:
        if doc.table is None or (fallback is not None and doc.table.name == "transformers"):
            doc.table = fallback or doc.table or table("transformers")
