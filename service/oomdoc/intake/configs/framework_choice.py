"""Which table a piece of configuration gets, and how sure it is: below a half, the framework is unknown.

The candidate is the table with the most evidence: what is run or imported, the keys that only this framework has, those
it has among others. How probable it is then follows from these, from the share of the piece's keys that the table
knows, and from how many there are: a forced guess knows few of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final

from oomdoc.intake.configs.declared import TABLES, all_names, table
from oomdoc.intake.configs.document import FILE_FORMS, SURE, Doc, keys_of, known_as
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.guessing import concerns_memory, guessed, trains
from oomdoc.intake.configs.launch import LAUNCH_KEYS
from oomdoc.intake.configs.programs import lower_case
from oomdoc.intake.configs.table import Table, norm
from oomdoc.intake.configs.wordlist import word_set
from oomkb.dataclass import dataclass
from oomkb.frameworks import ENGINES, LAUNCHERS, PLAIN

_COMMAND_WEIGHT: Final = 12
_MARK_WEIGHT: Final = 4
MIN_SCORE: Final = 2
"""Evidence below which no table is a candidate."""
_MAX_CANDIDATES: Final = 4
ENOUGH: Final = 0.5
"""Probability below which a piece's framework is unknown."""
_BIAS: Final = -4.5
_COMMAND: Final = 2.0
_MARK: Final = 0.35
_MAX_MARKS: Final = 8
_SHARE: Final = 8.0
"""Weights of a logistic regression on 1,250 example files of 8 frameworks that have a table and of 20 other projects
(each project weighing alike): at a half it keeps 97 % of those rightly recognised and 19 of 200 forced ones."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """The table that fits best, whether a program or key of its own speaks for it, and how many."""

    table: Table
    command: bool
    marks: int


@cache
def _patterns(table_name: str, field: str) -> tuple[re.Pattern[str], ...]:
    found = table(table_name)
    return tuple(re.compile(c) for c in getattr(found.record, field)) if found is not None else ()


@lru_cache(maxsize=1024)
def _runs(table_name: str, programs: str, field: str = "programs") -> bool:
    """Whether a program of a framework's own is run; asked anew after each change that a patch makes."""
    return any(p.search(programs) for p in _patterns(table_name, field))


_HINTS_OF_A_SCRIPT: Final = 2
"""Keys that a framework has among others, beside which a script's common name counts."""


def _evidence(table: Table, keys: frozenset[str], programs: str) -> tuple[int, int]:
    """Programs and keys of the table's own; with one of them, what speaks for its bases speaks for it too."""
    beside = len(table.record.hints & keys) >= _HINTS_OF_A_SCRIPT
    commands = int(
        bool(programs) and (_runs(table.name, programs) or (beside and _runs(table.name, programs, "scripts")))
    )
    marks = len(table.record.marks & keys)
    if table.record.own_prefixes:
        marks += sum(1 for key in keys if key.startswith(table.record.own_prefixes))
    if commands or marks:
        marks += len((keys & table.base_marks) - table.record.marks)
    return commands, marks


def _score(table: Table, keys: frozenset[str], programs: str) -> tuple[int, int]:
    commands, marks = _evidence(table, keys, programs)
    own = commands * _COMMAND_WEIGHT + marks * _MARK_WEIGHT
    if table.bases and not own:
        return 0, 0
    return own + len(table.hints & keys), own


@lru_cache(maxsize=256)
def candidates(
    keys: frozenset[str], programs: str, likely: str | None = None, form: str = ""
) -> tuple[Recognition, ...]:
    """The tables for which there is some evidence, best first; asked anew after each change that a patch makes.

    :param keys: normalised keys, nested ones both whole and by their last part.
    :param programs: what is run, imported and called, as text (bounded by the caller).
    :param form: the form that it is in; not every framework takes TOML.
    :param likely: the framework of what surrounds it, which wins where the evidence is no better for another.
    """
    programs = programs if programs.strip() else ""
    scored: list[tuple[int, int, int, Table]] = []
    for place, row in enumerate(TABLES):
        if form == "toml" and not row.record.toml:
            continue
        score, own = _score(row, keys, programs)
        if row.name == likely and score:
            score, own = score + 2, own + 2
        if score >= MIN_SCORE:
            scored.append((score, own, -place, row))
    scored.sort(key=lambda entry: entry[:3], reverse=True)
    chosen = [entry[3] for entry in scored[:_MAX_CANDIDATES]]
    chosen[:1] = [_most_derived(row, keys, programs) for row in chosen[:1]]
    evidence = [(row, *_evidence(row, keys, programs)) for row in chosen]
    return tuple(Recognition(row, commands > 0, marks) for row, commands, marks in evidence)


def _most_derived(base: Table, keys: frozenset[str], programs: str) -> Table:
    """What is run or imported of a framework built on ``base`` outweighs what it takes from the base."""
    built = [
        (*_score(t, keys, programs), t) for t in TABLES if any(b is base for b in t.bases) and _runs(t.name, programs)
    ]
    return max(built, key=lambda entry: entry[:2])[2] if built else base


def probability_of(found: Recognition, known: Collection[bool]) -> float:
    """How probable the candidate is, 0..1.

    :param known: for each of the piece's keys, whether the table knows it.
    """
    share = (sum(known) + 1.0) / (len(known) + 2.0)
    odds = _BIAS + _COMMAND * found.command + _MARK * min(found.marks, _MAX_MARKS) + _SHARE * share
    return 1.0 / (1.0 + math.exp(-odds))


def recognise_doc(doc: Doc, likely: str | None = None) -> None:
    """Give a piece the table that fits best, where one does."""
    found = next(iter(candidates(_speaking(doc), doc.programs, likely, doc.form)), None)
    doc.table = found.table if found is not None else fallback(doc)
    doc.marks = (found.command, found.marks) if found is not None else (False, 0)


def recognise_sections(doc: Doc) -> None:
    """Of Python that only sets values, the dictionaries as the sections of a file, where a framework has these."""
    if not _only_settings(doc) or not any("." in e.key for e in doc.own):
        return
    sections = replace(doc, entries=list(doc.own), form="yaml")
    recognise_doc(sections)
    if sections.table is not None and sections.marks[1]:
        known = known_keys(sections.entries, sections.table)
        if probability_of(Recognition(sections.table, *sections.marks), known) >= SURE:
            doc.table, doc.marks, doc.entries = sections.table, sections.marks, sections.entries


JUDGED: Final = FILE_FORMS | {"shell"}


def _speaking(doc: Doc) -> frozenset[str]:
    """The keys that may speak for a framework."""
    return frozenset(keys_of(entry for entry in doc.entries if entry.scope not in _LAUNCHES))


_SNIPPET_KEYS: Final = 5
"""Keys under which a piece is a snippet, not the configuration of a run."""


_LAUNCHES: Final = frozenset({"sbatch", "srun", "mpirun", "torchrun"})
"""What starts any framework's programs: its own settings speak for none."""
_MIN_SNIPPET_PROBABILITY: Final = 0.2
"""Below it, not even a snippet is taken for what nothing but a few common keys speaks for."""
_MIN_PROBABILITY: Final = 0.7
"""Below it, another table may know the keys better."""
_MIN_RUN_KEYS: Final = 2
"""Fields or keys that concern memory, which make a piece whose framework is unknown the configuration of a run."""


def judge(doc: Doc, given: Table | None) -> None:
    """How sure the table is; without one, or below a half, the framework is unknown."""
    if doc.table is not None and doc.table is given:
        return
    if not (doc.form in JUDGED or _only_settings(doc)):
        if doc.form == "python" and doc.table is not None and not doc.marks[0]:
            # A program's own variables are called anything.
            passed = frozenset(keys_of(e for e in doc.entries if e.style != "assign"))
            own = [e for e in doc.entries if e.style != "call" and not e.off]
            likely = probability_of(Recognition(doc.table, *doc.marks), known_keys(own, doc.table)) >= ENOUGH
            marked = bool(doc.marks[1]) and (likely or _evidence(doc.table, passed, "")[1] > 0)
            if not marked and (doc.table.name != PLAIN or len(doc.table.hints & passed) < MIN_SCORE):
                doc.table = fallback(doc)
        if doc.form == "python" and _weakly_known(doc) and _trains_by_itself(doc):
            known = known_keys(doc.own, None)
            doc.table, doc.unknown, doc.program = None, True, True
            doc.probability, doc.unknown_keys = 0.0, 1.0 - sum(known) / len(known) if known else 0.0
        return
    settings = [
        e
        for e in doc.entries
        if not e.off and e.style not in ("call", "item", "env") and e.key[:1] != "@" and e.scope not in _LAUNCHES
    ]
    known = known_keys(settings, doc.table)
    doc.unknown_keys = 1.0 - sum(known) / len(known) if known else 0.0
    if doc.table is not None:
        doc.probability = probability_of(Recognition(doc.table, *doc.marks), known)
        if doc.probability < _MIN_PROBABILITY:
            _reconsider(doc, settings)
        foreign = len(known) > 1 and not any(known) and not doc.marks[1] and doc.table.name not in LAUNCHERS
        if doc.probability >= ENOUGH or (
            len(known) < _SNIPPET_KEYS
            and not foreign  # a script of a common name that knows none of its arguments is another's
            and (any(doc.marks) or doc.probability > _MIN_SNIPPET_PROBABILITY)
        ):
            return
    else:
        doc.probability = 0.0
    taken = len(list(guessed(settings)))
    concerning = sum(1 for e in settings if concerns_memory(e.key))
    run = (taken > 0 and max(taken, concerning) >= _MIN_RUN_KEYS) or (
        concerning > 0 and trains((norm(e.key) for e in settings), _MIN_RUN_KEYS)
    )
    doc.table, doc.unknown = None, len(known) >= _SNIPPET_KEYS and run


_TRAINED_WITH: Final = word_set("trained_with")
_STEPS: Final = re.compile(
    r"\b(?:optimizer|optim|opt|engine|accelerator|model_engine)\.step\(\)|\b(?:AdamW|Adam)(?:8bit)?\(\)"
)
_MIN_OWN: Final = 2
"""Settings of its own by which a program is one that trains, fields among them."""


def _weakly_known(doc: Doc) -> bool:
    """Whether no table, an engine's alone, or no more than one key speaks for what a program is."""
    return doc.table is None or doc.table.name in ENGINES or (not doc.marks[0] and doc.marks[1] <= 1)


def _trains_by_itself(doc: Doc) -> bool:
    """Whether a program that no record describes trains a model, with settings that it keeps in one place.

    An engine that it has settings for, and does not start as a server, generates for it.
    """
    imported = {name.partition(".")[0] for name in doc.programs.split() if "(" not in name}
    if not doc.whole_file or imported.isdisjoint(_TRAINED_WITH):
        return False
    if doc.table is not None and doc.marks[0]:  # it runs the engine, which may be for what it trains
        return ".backward()" in doc.programs and _STEPS.search(doc.programs) is not None
    settings = lower_case(doc.own)
    keys = [norm(e.key) for e in settings]
    fields = {name for name, _, _ in guessed(settings, trained=True)}
    return bool(fields) and trains(keys) and (len(fields) >= _MIN_OWN or trains(keys, _MIN_OWN))


_PLAIN_CALLS: Final = frozenset(
    {"dict()", "int()", "float()", "str()", "list()", "tuple()", "range()", "dataclass()", "field()"}
)


def _only_settings(doc: Doc) -> bool:
    """Whether Python does nothing but set names to values, ``dict(...)`` among them: a configuration, not a program."""
    calls = {e.key for e in doc.entries if e.style == "call"}
    return doc.form == "python" and doc.whole_file and not doc.uses and calls <= _PLAIN_CALLS


def _reconsider(doc: Doc, settings: list[Entry]) -> None:
    """Another table for which less speaks at first sight, but which knows the keys."""
    for other in candidates(_speaking(doc), doc.programs, form=doc.form)[1:]:
        known = known_keys(settings, other.table)
        probability = probability_of(other, known)
        if (other.marks or other.command) and probability >= max(ENOUGH, doc.probability):
            doc.table, doc.marks, doc.probability = other.table, (other.command, other.marks), probability
            doc.unknown_keys = 1.0 - sum(known) / len(known)


def known_keys(settings: list[Entry], owner: Table | None) -> list[bool]:
    """For each key, whether the table knows it."""
    if owner is None:
        names = all_names()
        return [norm(key) in names for key in dict.fromkeys(e.key for e in settings)]
    found = {shown.key: norm(shown.key) for shown in known_as(settings, owner, whole=False)}
    own = owner.record.marks | owner.hints | LAUNCH_KEYS
    return [owner.knows(key) or key in own or key.rsplit(".", 1)[-1] in LAUNCH_KEYS for key in found.values()]


_LAUNCHERS: Final = tuple(sorted(LAUNCHERS - {"fsdp"}, reverse=True))
"""Launchers that are programs of their own."""


def fallback(doc: Doc) -> Table | None:
    """A launched script nobody knows is most often written on transformers."""
    if doc.form != "shell" or not any(w in doc.programs for w in (*_LAUNCHERS, "torchrun", ".py")):
        return None
    base = table(PLAIN)
    if base is not None and any(k in base.names for k in keys_of(e for e in doc.entries if e.scope not in _LAUNCHERS)):
        return base
    return table(next((name for name in _LAUNCHERS if name in doc.programs), None))
