"""The cases by cause and framework, and one by its id."""

from __future__ import annotations

import difflib

from oomkb.errors import RecordError
from oomkb.records.case import Case
from oomkb.records.loader import load_cases


def listed(*, cause: str | None = None, framework: str | None = None) -> tuple[Case, ...]:
    """The shipped and private cases in order of their ids, of one cause and/or framework where asked.

    :raises RecordError: for what is no cause.
    """
    from oomkb.records.taxonomy import CAUSES

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
