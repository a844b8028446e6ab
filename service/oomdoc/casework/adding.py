"""Adding a case to a private folder, after the same checks that the shipped ones pass."""

from __future__ import annotations

import difflib
from pathlib import Path

from oomdoc.casework.starting import create
from oomkb.dataclass import dataclass
from oomkb.errors import RecordError
from oomkb.records.case import Case
from oomkb.records.files import case_id, read_text
from oomkb.records.lint import Problem, lint_text
from oomkb.records.loader import load_cases, private_dirs
from oomkb.records.taxonomy import CAUSES


def listed(*, cause: str | None = None, framework: str | None = None) -> tuple[Case, ...]:
    """The shipped and private cases in order of their ids, of one cause and/or framework where asked.

    :raises RecordError: for what is no cause.
    """
    if cause is not None and cause not in CAUSES:
        near = difflib.get_close_matches(cause, CAUSES, n=1)
        raise RecordError(f"{cause!r} is no cause", hint=f"did you mean {near[0]}?" if near else ", ".join(CAUSES))
    wanted = framework.lower() if framework else None
    return tuple(
        case
        for case in load_cases()
        if (cause is None or case.cause == cause) and (wanted is None or wanted in case.frameworks)
    )


def found(identifier: str) -> Case:
    """The case with this id (``cause/slug``, or the slug alone where only one case has it).

    :raises RecordError: where there is none, naming those that are spelled alike.
    """
    cases = {case.id: case for case in load_cases()}
    if identifier in cases:
        return cases[identifier]
    same = [case for case in cases.values() if case.slug == identifier]
    if len(same) == 1:
        return same[0]
    near = [case.id for case in same] or difflib.get_close_matches(identifier, cases, n=3)
    raise RecordError(f"no case {identifier!r}", hint=f"near it: {', '.join(near)}" if near else "see oomdoc case list")


@dataclass(frozen=True, slots=True)
class Added:
    """Where the case lies now, or what is wrong with it (then nothing was written)."""

    path: Path | None = None
    problems: tuple[Problem, ...] = ()


def check_text(identifier: str, text: str) -> tuple[Problem, ...]:
    """What is wrong with a case that was handed in as text under the id ``cause/slug``."""
    return tuple(lint_text(text, case_id=identifier))


def add(file: Path, folder: Path | None = None, *, cause: str | None = None) -> Added:
    """Check a case file and copy it into a private folder as ``<cause>/<slug>.yaml``.

    The cause is the name of the folder that the file lies in, unless given. A case that is there under the same id
    is not written over.

    :raises RecordError: where no folder is known, the cause is not clear, or the case exists.
    """
    target = folder or next(iter(private_dirs()), None)
    if target is None:
        raise RecordError(
            "no private case folder", where="OOMDOC_CASES", hint="set OOMDOC_CASES=~/cases, or give --folder"
        )
    cause = cause or file.resolve().parent.name
    if cause not in CAUSES:
        near = difflib.get_close_matches(cause, CAUSES, n=1)
        hint = f"did you mean {near[0]}?" if near else "move it to <cause>/<slug>.yaml, or give --cause"
        raise RecordError(f"lies in {cause!r}, which is no cause", where=str(file), hint=hint)
    identifier = f"{cause}/{file.stem}"
    text = read_text(file)
    problems = lint_text(text, case_id=identifier, file=str(file))
    if problems:
        return Added(problems=tuple(problems))
    path = target.expanduser() / cause / f"{file.stem}.yaml"
    return Added(path=create(path, text, f"{case_id(path)} is there already", "rename the file"))
