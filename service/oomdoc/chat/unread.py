"""What a turn says and nobody read: numbers and names of settings that went into no field, to be named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.explicit import blanked, read_explicit
from oomdoc.chat.operators import find_operators
from oomdoc.chat.phrases import fields_named
from oomdoc.chat.reading import read_changes
from oomdoc.chat.session import flat
from oomdoc.chat.wording import patterns
from oomdoc.diagnosis.unused import unused
from oomdoc.intake.asked import asked_in
from oomdoc.intake.configs.declared import all_names
from oomdoc.intake.quantities.fields import sizes_of_others

_NAME: Final = re.compile(
    r"(?<![\w./-])(?:--[a-z][\w-]{2,48}|-[a-z]{2,4}(?=\s\d)|[a-z][a-z0-9]{0,24}(?:_[a-z0-9]{1,24}){1,6})(?![\w/-])"
)
_INSTANCES: Final = patterns("reading")["instances"]
_MOST: Final = 3
"""Numbers and names that are quoted."""


def unread_numbers(turn: str, fields: Mapping[str, Any], context: Context) -> tuple[str, ...]:
    """The numbers that are the value of no field that was read, nor of one that the job has, with the words beside."""
    if find_operators(turn):
        return ()
    turn = blanked(turn, (*read_explicit(turn, context).spans, *(m.span() for m in _INSTANCES.finditer(turn))))
    job = flat(context.job)
    machines = (fields.get("gpus") or job.get("gpus") or 0) * (fields.get("nodes") or job.get("nodes") or 1)
    stages = [int(digit) for value in fields.values() if isinstance(value, str) for digit in re.findall(r"\d+", value)]
    asked = asked_in(turn)
    each = asked.request_length if asked.wanted == "requests" else None  # as many of these as the cache holds
    return unused(asked.numbers, sizes_of_others(turn), dict(fields), job, machines, stages, each)[:_MOST]


def unread_names(turn: str, context: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of settings that set nothing here: those that some framework has, and those that none has."""
    known: list[str] = []
    unknown: list[str] = []
    spans = read_explicit(turn, context).spans
    for match in _NAME.finditer(turn):
        name = match[0].lstrip("-")
        if name == match[0] and any(start < match.end() and match.start() < end for start, end in spans):
            continue
        if fields_named(name) or any(read_changes(turn[match.start() : match.end() + 24], context).fields):
            continue
        (known if {name, name.replace("-", "_")} & all_names() else unknown).append(match[0])
    return tuple(dict.fromkeys(known))[:_MOST], tuple(dict.fromkeys(unknown))[:_MOST]
