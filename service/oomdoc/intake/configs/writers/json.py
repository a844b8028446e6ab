"""Changing JSON (comments and trailing commas included) member by member."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.writers.lines import indent_of, line_end, line_start, newline_at, splice
from oomdoc.intake.configs.writers.spelling import json_text


def replace(text: str, entry: Entry, value: Any) -> str:
    """The text with the entry's value replaced."""
    start, end = entry.value_span
    return splice(text, start, end, _block(text, entry.key_span[0], value))


def _block(text: str, at: int, value: Any, step: str = "  ") -> str:
    if not isinstance(value, dict) or len(value) == 1:
        return json_text(value)
    indent = indent_of(text, at)
    newline = newline_at(text, at)
    return json.dumps(value, indent=step, ensure_ascii=False).replace("\n", newline + indent)


def insert(
    text: str, entries: Sequence[Entry], key: str, value: Any, anchor: Entry | None, start: int, end: int
) -> str | None:
    """The text with a new member; missing parents are made."""
    parent, _, name = key.rpartition(".")
    owner = next((e for e in entries if e.key == parent), None) if parent else None
    if parent and owner is None:
        return insert(text, entries, parent, {name: value}, anchor, start, end)
    low, high = owner.value_span if owner is not None else (start, end)
    if text[low : low + 1] != "{":
        return replace(text, owner, {name: value}) if owner is not None else None
    members = [e for e in entries if _is_child(e.key, parent)]
    if not members:
        inner = text[low + 1 : high - 1]
        if inner.strip():
            return None
        return splice(text, low + 1, high - 1, f'"{name}": {json_text(value)}')
    return _beside(text, members, anchor if anchor is not None and anchor in members else members[-1], name, value)


def _is_child(key: str, parent: str) -> bool:
    rest = key[len(parent) + 1 :] if parent else key
    return key.startswith(parent + "." if parent else "") and "." not in rest and "[]" not in rest


def _beside(text: str, members: Sequence[Entry], near: Entry, name: str, value: Any) -> str:
    low, high = near.key_span[0], near.value_span[1]
    multi = not text[line_start(text, low) : low].strip()
    tail = re.match(r"[ \t]*,", text[high : high + 40])
    if not multi:
        member = f'"{name}": {json_text(value)}'
        return splice(text, low, low, member + ", ")
    member = f'"{name}": {_block(text, low, value)}'
    newline, indent = newline_at(text, low), indent_of(text, low)
    if tail and near is not members[-1]:
        at = line_end(text, high)
        return splice(text, at, at, f"{indent}{member},{newline}")
    at = line_start(text, low)
    return splice(text, at, at, f"{indent}{member},{newline}")
