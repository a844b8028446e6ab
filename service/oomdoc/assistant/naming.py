"""The job fields that a language model gives: whether a number was named, and which values a run can have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oomdoc.assistant.provenance import Sources
from oomdoc.chat.grammar import understand
from oomdoc.chat.history import context_of
from oomdoc.chat.operators import find_operators
from oomdoc.chat.session import Session
from oomdoc.diagnosis.known_run import taken_run
from oomdoc.intake.numbers import NUMBER, read_number
from oomdoc.tools.functions import job_of
from oomkb.errors import JobError, OomdocError
from oomkb.memory.job import Job

_NUMBER: Final = re.compile(f"(?i){NUMBER}")
_NEAR: Final = 5e-3
_DERIVED: Final = ("world", "dp", "params_b", "nodes")
"""Fields that follow from others: their numbers need not be said."""


def check_named(name: str, value: float, text: str, before: Session, sources: Sources) -> None:
    """Nothing, where somebody has named the number, in digits, in words or as a part of the present one.

    :param text: what the person says.
    :param before: the conversation until then.
    :raises JobError: where nobody has.
    """
    context = context_of(before)
    own = understand(text, before.job, context).changes
    if name in _DERIVED or own.get(name) == value or value in sources.numbers | sources.sizes:
        return
    present = context.present(name)
    named = {read_number(match[0]) for match in _NUMBER.finditer(text)}
    if isinstance(present, int | float):
        named |= {round(operator.apply(float(present)), 3) for operator in find_operators(text)}
    if not any(abs(value - one) < 1e-6 or abs(value - one / 100) < 1e-6 for one in named):
        raise JobError("nobody named this value", where=name, hint="ask the person, or take one that a result proposes")


def check_measured(points: Any, sources: Sources) -> None:
    """Nothing, where every figure of the points was said or read.

    :raises JobError: where one was not.
    """
    known = [*sources.numbers, *sources.sizes]
    for point in points if isinstance(points, list) else []:
        for value in point.values() if isinstance(point, Mapping) else []:
            if isinstance(value, int | float) and not any(abs(value - one) < _NEAR for one in known):
                raise JobError(f"nobody measured {value:g}", where="points", hint="take the person's own figures")


def with_valid(fields: Mapping[str, Any], base: Job) -> tuple[Job, dict[str, str]]:
    """The job with those fields that a run can have, and why the others are refused.

    :raises JobError: where none is left.
    """
    try:
        return job_of(fields, base), {}
    except JobError:
        refused: dict[str, str] = {}
        for name, value in fields.items():
            try:
                job_of({name: value}, base)
            except JobError as error:
                refused[name] = str(error)
        left = {name: value for name, value in fields.items() if name not in refused}
        if not left or not refused:
            raise
        return job_of(left, base), refused


def open_choices(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job as every answer prices it, for a function, and which values of it were chosen for want of a statement."""
    try:
        taken = taken_run(job)
    except OomdocError:
        return plain_document(job), {}
    return plain_document(taken), {name: one.value for name, one in taken.assumed.items() if name not in job.assumed}


def plain_document(job: Job) -> dict[str, Any]:
    """The fields that oomdoc knows, as plain values."""
    return {k: v for k, v in job.document().items() if k in Job.__dataclass_fields__}
