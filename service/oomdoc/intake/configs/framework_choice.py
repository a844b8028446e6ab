"""Which table a piece of configuration gets, and how sure it is: below a half, the framework is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.intake.configs.document import Doc, keys_of, known_as
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.guessing import concerns_memory, guessed, trains
from oomdoc.intake.configs.launch import LAUNCH_KEYS
from oomdoc.intake.configs.recognise import ENOUGH, MIN_SCORE, Recognition, candidates, probability_of, recognise
from oomdoc.intake.configs.registry import all_names, table, tables
from oomdoc.intake.configs.table import Table, norm
from oomkb.frameworks import LAUNCHERS, PLAIN

__all__ = ["JUDGED", "judge", "known_keys", "recognise_doc"]


def recognise_doc(doc: Doc, likely: str | None = None) -> None:
    """Give a piece the table that fits best, where one does."""
    found = recognise(_speaking(doc), doc.programs, tables(), likely)
    doc.table = found.table if found is not None else fallback(doc)
    doc.marks = (found.command, found.marks) if found is not None else (False, 0)


JUDGED: Final = frozenset({"yaml", "json", "toml", "shell"})


def _speaking(doc: Doc) -> Iterator[str]:
    """The keys that may speak for a framework."""
    return keys_of(entry for entry in doc.entries if entry.scope not in _LAUNCHES)


_SNIPPET_KEYS: Final = 5
"""Keys under which a piece is a snippet, not the configuration of a run."""


_LAUNCHES: Final = frozenset({"sbatch", "srun", "torchrun"})
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
        if doc.form == "python" and doc.table is not None and not any(doc.marks):
            passed = [e for e in doc.entries if e.style != "assign"]  # a program's own variables are called anything
            if len(doc.table.hints & set(keys_of(passed))) < MIN_SCORE:
                doc.table = fallback(doc)
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
        if doc.probability >= ENOUGH or (
            len(known) < _SNIPPET_KEYS and (any(doc.marks) or doc.probability > _MIN_SNIPPET_PROBABILITY)
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


_PLAIN_CALLS: Final = frozenset({"dict()", "int()", "float()", "str()", "list()", "tuple()", "range()"})


def _only_settings(doc: Doc) -> bool:
    """Whether Python does nothing but set names to values and ``dict(...)``: a configuration, not a program."""
    calls = {e.key for e in doc.entries if e.style == "call"}
    return doc.form == "python" and doc.whole_file and not doc.uses and "dict()" in calls <= _PLAIN_CALLS


def _reconsider(doc: Doc, settings: list[Entry]) -> None:
    """Another table for which less speaks at first sight, but which knows the keys."""
    for other in candidates(_speaking(doc), doc.programs, tables())[1:]:
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
    found = {shown.key: norm(shown.key) for shown in known_as(settings, owner)}
    own = owner.marks | owner.hints | LAUNCH_KEYS
    return [owner.knows(key) or key in own or key.rsplit(".", 1)[-1] in LAUNCH_KEYS for key in found.values()]


_LAUNCHERS: Final = tuple(sorted(LAUNCHERS - {"fsdp"}, reverse=True))
"""Launchers that are programs of their own."""


def fallback(doc: Doc) -> Table | None:
    """A launched script nobody knows is most often written on transformers."""
    if doc.form != "shell" or not any(w in doc.programs for w in (*_LAUNCHERS, "torchrun", ".py")):
        return None
    base = table(PLAIN)
    if base is not None and any(k in base.names() for k in keys_of(doc.entries)):
        return base
    return table(next((name for name in _LAUNCHERS if name in doc.programs), None))
