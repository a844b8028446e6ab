"""A text to its documents: pieces of configuration with their framework's table applied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from oomdoc.intake.configs.declared import all_names, table
from oomdoc.intake.configs.document import PROGRAM_CHARS, Doc, believed, keys_of, known_as
from oomdoc.intake.configs.entry import Entry, FormError, Fragment
from oomdoc.intake.configs.forms.command_lists import command_lists
from oomdoc.intake.configs.forms.flags import parse_shell
from oomdoc.intake.configs.forms.flow import parse_flow
from oomdoc.intake.configs.forms.loose import parse_loose
from oomdoc.intake.configs.forms.python import parse_python
from oomdoc.intake.configs.forms.toml import parse_toml
from oomdoc.intake.configs.forms.words import Variable
from oomdoc.intake.configs.forms.yaml import parse_yaml
from oomdoc.intake.configs.framework_choice import judge, recognise_doc, recognise_sections
from oomdoc.intake.configs.nesting import embedded, modelfile
from oomdoc.intake.configs.segments import Segment, segments
from oomdoc.intake.configs.table import Table
from oomkb.frameworks import LAUNCHERS, PLAIN
from oomkb.kept import lazy

__all__ = ["MAX_CHARS", "Doc", "analyse", "believed", "known_as"]

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
    runs.env = [*asked.env, *runs.env]  # variables lie with the first piece of a script
    return rest


def _assembled(docs: list[Doc]) -> list[Doc]:
    """Commands with the arrays that they take in: what the shell runs is one command."""
    arrays: dict[str, list[Doc]] = {}
    for doc in docs:
        name = doc.array.lstrip("+")
        if name and name != _BATCH:
            arrays[name] = [*arrays.get(name, []), doc] if doc.array[0] == "+" else [doc]
    docs = _submitted(docs)
    out: list[Doc] = []
    taken: set[str] = set()
    for doc in docs:
        names = doc.uses & arrays.keys() - taken if not doc.array else frozenset()
        used = [one for name in sorted(names) for one in arrays[name]]
        if used:
            taken |= names
            whole = _joined([*used, doc])
            recognise_doc(whole)
            out.append(whole)
        else:
            out.append(doc)
    # Where commands take in what is set apart, what none takes in is not in effect; else it is for one elsewhere.
    kept = [d for d in out if not (d.array and d.array != _BATCH and (taken or len(arrays[d.array.lstrip("+")]) > 1))]
    for parts in arrays.values() if not taken else ():
        if len(parts) > 1:
            kept.append(_joined(parts))
            recognise_doc(kept[-1])
    if kept:
        kept[0].env = [*(e for d in out if d not in kept for e in d.env), *kept[0].env]
    return kept


def merge_shell(docs: list[Doc]) -> list[Doc]:
    """Arrays, strings of flags and second commands belong to the command that a script runs."""
    docs = _assembled(docs)
    mains = [d for d in docs if d.table is not None]
    bare = len(docs) > 1 and not any(d.programs.strip() for d in docs)  # settings a line, of no command
    if not docs or (len({d.table.name for d in mains if d.table}) > 1 and not bare):
        return docs
    if bare or not mains:
        joined = _joined(docs)
        recognise_doc(joined)
        return [joined]
    orphans = [d for d in docs if d.table is None]
    # Several runs of one framework in a file (a sweep): the first is the one the rest is attached to.
    if any(e.key == "@0" for e in mains[0].entries):  # ``... | tee log.txt`` has words of its own
        for doc in orphans:
            doc.entries = [e for e in doc.entries if e.key[:1] != "@"]
    first = _joined([*orphans, mains[0]])
    first.table, first.marks = mains[0].table, mains[0].marks
    return [first, *mains[1:]]


def _joined(docs: list[Doc]) -> Doc:
    ordered = sorted(docs, key=lambda d: d.start)
    return Doc(
        table=None,
        form="shell",
        start=min(d.start for d in docs),
        end=max(d.end for d in docs),
        entries=[e for d in ordered for e in d.entries],
        env=[e for d in ordered for e in d.env],
        programs=" ".join(d.programs for d in ordered)[:PROGRAM_CHARS],
        whole_file=any(d.whole_file for d in docs),
        fenced=any(d.fenced for d in docs),
        uses=frozenset().union(*(d.uses for d in docs)),
    )


MAX_CHARS: Final = 1_500_000
_BUDGET: Final = 150_000
"""Characters of one source that are read as configuration; nobody's configuration is larger."""
_MAX_ENTRIES: Final = 8_000
"""Settings of one source, likewise."""
_MAX_DOCS: Final = 400
_LINK: Final = lazy(r"\$\{([A-Za-z_][\w.]{0,120})\}\Z")
_HOPS: Final = 4
_BRACE: Final = lazy(r"(?:[ \t\r]*(?:#[^\n]*)?\n){0,200}[ \t]*\{(?![{%])")


def _interpolated(entries: list[Entry]) -> list[Entry]:
    """Values that are ``${another.key}`` (OmegaConf), as that key has it; they are written where it stands."""
    by_key = {entry.key: entry for entry in entries}
    out = []
    for entry in entries:
        found: Entry | None = entry
        for _ in range(_HOPS):
            link = _LINK.match(found.value) if found is not None and isinstance(found.value, str) else None
            if link is None:
                break
            roots = (entry.key.split(".")[:depth] for depth in range(entry.key.count(".") + 1))
            found = next((by_key[k] for root in roots if (k := ".".join((*root, link[1]))) in by_key), None)
        if found is not None and found is not entry and not isinstance(found.value, dict):
            out.append(entry.written_at(found))
        else:
            out.append(entry)
    return out


def _parse(text: str, segment: Segment) -> list[Fragment]:
    start, end, form = segment.start, segment.end, segment.form
    if form == "yaml" and (flow := _BRACE.match(text, start, end)) is not None:
        start, form = flow.end() - 1, "json"  # YAML in flow style from end to end
    if form == "yaml":
        entries, blocks = parse_yaml(text, start, end)
        entries = _interpolated(entries) if "${" in text[start:end] else entries
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
        return [parse_python(text, start, end), *command_lists(text, start, end)]
    if form == "shell":
        return _shell(text, segment)
    if form == "modelfile":
        return [modelfile(text, start, end)]
    return []


def _shell(text: str, segment: Segment) -> list[Fragment]:
    reading = parse_shell(text, segment.start, segment.end, lenient=not segment.whole_file)
    out = reading.fragments
    for body in reading.heredocs:
        inner = text[body.start : body.end].lstrip()
        form = "json" if inner[:1] == "{" else "python" if re.match(r"(?:import|from) ", inner) else "yaml"
        try:
            for piece in _parse(text, Segment(form, body.start, body.end)):
                entries = (_of_variable(entry, body.known) for entry in piece.entries)
                out = [*out, replace(piece, entries=tuple(entries))]
        except FormError:
            continue
    return out


_NAME: Final = lazy(r"\$\{?([A-Za-z_]\w{0,80})\}?\Z")


def _of_variable(entry: Entry, known: Mapping[str, Variable]) -> Entry:
    """A value that is a variable of the script which writes the file, as the script sets it."""
    found = _NAME.match(entry.value) if isinstance(entry.value, str) else None
    variable = known.get(found[1]) if found is not None else None
    return entry.written_at(variable.word) if variable is not None and variable.word.resolved else entry


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


def _doc(fragment: Fragment, segment: Segment) -> Doc:
    scopes = " ".join(dict.fromkeys(e.scope for e in fragment.entries if e.scope and e.scope[0] != "@"))
    programs = (" ".join(fragment.programs) + " " + scopes)[:PROGRAM_CHARS]
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
        own=list(fragment.own),
    )


def _within_budget(name: str, text: str, cut: list[int]) -> Iterator[tuple[Segment, list[Fragment]]]:
    """The pieces of a text with what stands in them, as far as the bounds go; ``cut`` gets the offset of the rest."""
    characters, entries, documents, last = _BUDGET, _MAX_ENTRIES, _MAX_DOCS, False
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
            recognise_doc(doc, known.name if known else None)
            recognise_sections(doc)
        if segment.form == "loose":
            loose += found
        elif segment.form == "shell":
            shell = [d for d in found if d.form == "shell"]
            docs += merge_shell(shell) + [d for d in found if d.form != "shell"]
        else:
            docs += found
    if known is not None:
        _adopt_table(docs, known)
    for doc in docs:
        judge(doc, known)
    _beside(docs)
    _attach(docs, loose, known)
    return docs + loose


def _adopt_table(docs: list[Doc], known: Table) -> None:
    """Where the framework is given, documents that nothing speaks for, or only its base, are its."""
    names = known.names
    for doc in docs:
        if doc.table is known:
            continue
        own = sum(1 for k in keys_of(doc.entries) if k in names)
        base = doc.table is not None and any(doc.table is b for b in known.bases)
        if own and (doc.table is None or base):
            doc.table = known
    # What starts other frameworks' scripts says nothing against what a script is recognised as.
    spoken_for = known.name in LAUNCHERS and any(d.table is not None for d in docs)
    if docs and not spoken_for and not any(d.table is known for d in docs):
        best = max(docs, key=lambda d: sum(1 for k in keys_of(d.entries) if k in names))
        if any(k in names for k in keys_of(best.entries)) or len(docs) == 1:
            best.table = known


def _beside(docs: list[Doc]) -> None:
    """Python that only configures adapters belongs to the program beside it, else to the library below all."""
    python = [d for d in docs if d.form == "python"]
    main = next((d.table for d in python if d.table is not None), None) or table(PLAIN)
    for doc in python:
        if doc.table is None and main is not None and "LoraConfig" in doc.programs:
            doc.table = main


def _attach(docs: list[Doc], loose: list[Doc], known: Table | None) -> None:
    """Scattered keys are read with the table of the documents around them."""
    tables_here = [d.table for d in docs if d.table is not None and d.table.name not in LAUNCHERS]
    fallback = known or (tables_here[0] if tables_here else None)
    for doc in loose:
        if doc.table is None or (fallback is not None and doc.table.name == PLAIN):
            doc.table = fallback or doc.table or table(PLAIN)
