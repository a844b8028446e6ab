"""The commands of a script put together: arrays, strings of flags and a batch job's requests belong to what is run."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.configs.document import PROGRAM_CHARS, Doc
from oomdoc.intake.configs.framework_choice import recognise_doc

__all__ = ["merge_shell"]

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
    # Where commands take in what is set apart, what none takes in is not in effect.
    return [d for d in out if not (d.array and d.array != _BATCH and taken)]


def merge_shell(docs: list[Doc]) -> list[Doc]:
    """Arrays, strings of flags and second commands belong to the command that a script runs."""
    docs = _assembled(docs)
    mains = [d for d in docs if d.table is not None]
    if not docs or len({d.table.name for d in mains if d.table}) > 1:
        return docs
    if not mains:
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
