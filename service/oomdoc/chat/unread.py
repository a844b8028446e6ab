"""What a turn says and nobody read: numbers and names of settings that went into no field, to be named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.operators import find_operators
from oomdoc.chat.reading import read_changes
from oomdoc.chat.session import flat
from oomdoc.intake.configs.declared import all_names
from oomdoc.intake.numbers import read_number
from oomkb.catalog import gpus, models

_NAME: Final = re.compile(r"(?<![\w./-])(?:--[a-z][\w-]{2,48}|[a-z][a-z0-9]{0,24}(?:_[a-z0-9]{1,24}){1,6})(?![\w/-])")
_NUMBER: Final = re.compile(
    r"(?<![\w.,:/_-])(?P<n>\d[\d,]{0,9}(?:\.\d{1,3})?)\s?(?P<unit>[kK万%]|[gG](?:i?[bB])?(?![A-Za-z]))?(?![\w./-]|,\d)"
)
_AROUND: Final = re.compile(r"(?i)\b(?!(?:and|but|with|for|at|to|of|by|in|on|or|the|it)\s)([a-z]{2,16}\s)\Z")
_BEHIND: Final = re.compile(r"\A\s?[A-Za-z]{2,16}")
_DIGITS: Final = re.compile(r"\d+(?:\.\d+)?")
_MOST: Final = 3
"""Numbers and names that are quoted."""


def unread_numbers(turn: str, fields: Mapping[str, Any], context: Context) -> tuple[str, ...]:
    """The numbers that are the value of no field that was read, nor of one that the job has, with the words beside."""
    if find_operators(turn):
        return ()
    known = {*_values(fields), *_values(flat(context.job))}
    names = [(m.start, m.start + len(m.text)) for m in models.find_all(turn)]
    names += [(m.start, m.start + len(m.text)) for m in gpus.find_all(turn)]
    found = []
    for match in _NUMBER.finditer(turn):
        if any(start < match.end() and match.start() < end for start, end in names):
            continue
        try:
            value = read_number(match["n"] + (match["unit"] if match["unit"] in ("k", "K", "万") else ""))
        except (ValueError, TypeError):
            continue
        if known.isdisjoint({value, value / 100, value / 1024, value * 1024}):
            before, behind = _AROUND.search(turn[: match.start()]), _BEHIND.match(turn[match.end() :])
            found.append(f"{before[1] if before else ''}{match[0]}{behind[0] if behind else ''}".strip())
    return tuple(dict.fromkeys(found))[:_MOST]


def unread_names(turn: str, context: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of settings that set nothing here: those that some framework has, and those that none has."""
    known: list[str] = []
    unknown: list[str] = []
    for match in _NAME.finditer(turn):
        name = match[0].lstrip("-")
        if any(read_changes(turn[match.start() : match.end() + 24], context).fields):
            continue
        (known if {name, name.replace("-", "_")} & all_names() else unknown).append(match[0])
    return tuple(dict.fromkeys(known))[:_MOST], tuple(dict.fromkeys(unknown))[:_MOST]


def _values(fields: Mapping[str, Any]) -> Iterator[float]:
    for name, value in fields.items():
        if isinstance(value, bool) or value is None or name == "params_b":
            continue
        if isinstance(value, int | float):
            yield float(value)
        else:
            yield from (float(digits) for digits in _DIGITS.findall(str(value)))
    total = (fields.get("gpus") or 0) * (fields.get("nodes") or 1)
    if isinstance(total, int | float):
        yield float(total)
