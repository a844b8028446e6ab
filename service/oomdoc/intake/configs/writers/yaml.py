"""Changing YAML line by line: nothing but the lines in question differs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.writers.lines import (
    indent_of,
    line_end,
    line_start,
    newline_at,
    splice,
    with_line,
    without_member,
)
from oomdoc.intake.configs.writers.spelling import in_yaml
from oomkb.kept import lazy

_TRUTHS: Final = lazy(r":[ \t]+(True|False|true|false|yes|no)[ \t]*(?:#|\r?$)", re.M)


def _truth_like(text: str, entry: Entry | None) -> str:
    if entry is not None:
        old = text[slice(*entry.value_span)]
        if old.lower() in ("true", "false", "yes", "no", "on", "off"):
            return old
    found = _TRUTHS.findall(text)
    upper = sum(1 for f in found if f[0].isupper())
    return "True" if upper * 2 > len(found) else "true"


def replace(text: str, entry: Entry, value: Any) -> str:
    """The text with the entry's value replaced."""
    start, end = entry.value_span
    like = _truth_like(text, entry)
    if entry.items and isinstance(value, list | tuple) and entry.items[0].style == "item":
        gap = newline_at(text, start) + indent_of(text, start) + "- "
        return splice(text, start, end, gap.join(in_yaml(v) for v in value))
    if entry.items and entry.items[0].style == "item":
        # A list below its key becomes one value beside it.
        colon = entry.key_span[1]
        stop = text.find(":", colon) + 1
        return splice(text, stop, end, " " + in_yaml(value, like=like))
    new = in_yaml(value, like=like, quote=entry.quote if not isinstance(value, bool) else "")
    if start == end:  # nothing stood there
        new = " " + new if text[start - 1 : start] == ":" else new
        new += " " if text[end : end + 1] == "#" else ""
    return splice(text, start, end, new)


def block_end(text: str, entry: Entry) -> int:
    """Where what belongs to a key ends: after its own line and all that is deeper."""
    own = len(indent_of(text, entry.key_span[0]))
    at = line_end(text, max(entry.key_span[1], entry.value_span[1] - 1, 0))
    last = at
    while at < len(text):
        stop = line_end(text, at)
        body = text[at:stop].strip()
        if body and not body.startswith("#"):
            depth = len(indent_of(text, at))
            if depth < own or (depth == own and not body.startswith("- ")):
                break
            last = stop
        at = stop
    return last


def remove(text: str, entry: Entry) -> str:
    """The text without the entry's lines (or without its place in a flow mapping)."""
    start = line_start(text, entry.key_span[0])
    if not text[start : entry.key_span[0]].strip():
        return splice(text, start, block_end(text, entry), "")
    return without_member(text, entry.key_span[0], entry.value_span[1])


def insert(text: str, entries: Sequence[Entry], key: str, value: Any, anchor: Entry | None) -> str | None:
    """The text with a new key: below its parent where the path has one, else after ``anchor``."""
    parent, _, name = key.rpartition(".")
    line_value = in_yaml(value, like=_truth_like(text, None))
    if parent:
        return _insert_child(text, entries, parent, name, line_value, anchor)
    top = [e for e in entries if "." not in e.key and "[]" not in e.key and e.style == "pair"]
    if anchor is None or "." in anchor.key or "[]" in anchor.key:
        anchor = top[-1] if top else None
    if anchor is None:
        end = "" if not text or text.endswith("\n") else newline_at(text, 0)
        return f"{text}{end}{name}: {line_value}\n"
    return _after(text, anchor, f"{indent_of(text, anchor.key_span[0])}{name}: {line_value}")


def _after(text: str, anchor: Entry, line: str) -> str:
    at = block_end(text, anchor)
    newline = newline_at(text, anchor.key_span[0])
    if at >= len(text) and not text.endswith("\n"):
        # Before a last line without a line break, so that it stays as it is.
        at = line_start(text, anchor.key_span[0])
    return splice(text, at, at, line + newline)


def _insert_child(
    text: str, entries: Sequence[Entry], parent: str, name: str, value: str, anchor: Entry | None
) -> str | None:
    owner = next((e for e in entries if e.key == parent), None)
    if owner is None:
        head, _, last = parent.rpartition(".")
        if head and not any(e.key == head for e in entries):
            return None
        newline = newline_at(text, 0)
        top = next((e for e in entries if e.key == head), None) if head else None
        indent = indent_of(text, top.key_span[0]) + "  " if top is not None else ""
        block = f"{indent}{last}:{newline}{indent}  {name}: {value}"
        if top is not None:
            at = line_end(text, top.key_span[1])
            return splice(text, at, at, block + newline)
        root = [e for e in entries if "." not in e.key and "[]" not in e.key]
        return (
            _after(text, anchor if anchor is not None and "." not in anchor.key else root[-1], block) if root else None
        )
    start, end = owner.value_span
    if text[start : start + 1] == "{":
        inside = text[start + 1 : end - 1].strip()
        return splice(text, start + 1, start + 1, f"{name}: {value}" + (", " if inside else ""))
    child = next((e for e in entries if e.key.startswith(parent + ".") and "." not in e.key[len(parent) + 1 :]), None)
    if child is not None:
        return _after(text, child, f"{indent_of(text, child.key_span[0])}{name}: {value}")
    if owner.value is not None:
        return None
    return with_line(text, owner.key_span[1], f"{indent_of(text, owner.key_span[0])}  {name}: {value}")
