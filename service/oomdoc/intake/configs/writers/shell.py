"""Changing commands: flags, overrides and environment variables; continuations, indentation and quotes kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.writers.lines import indent_of, line_end, line_start, newline_at, splice
from oomdoc.intake.configs.writers.spelling import in_shell

_CONTINUED: Final = re.compile(r"\\[ \t]*\r?\n?\Z")


def _end(entry: Entry) -> int:
    """Where the flag with its value ends in the command (quotes included)."""
    if entry.items:
        last = entry.items[-1]
        return last.value_span[1] + (1 if last.quote else 0)
    return entry.value_span[1] + (1 if entry.quote else 0)


def _own_end(text: str, entry: Entry) -> int:
    if not entry.shared:
        return _end(entry)
    # The value stands elsewhere: the flag ends after the variable's name.
    match = re.compile(r"[= \t]{1,20}[\"']?[^\s\"']{1,200}[\"']?").match(text, entry.key_span[1])
    return match.end() if match else entry.key_span[1]


def _truth_like(text: str, entries: Sequence[Entry]) -> str:
    for entry in entries:
        if isinstance(entry.value, bool) and entry.style in ("flag", "flag=", "override"):
            return text[slice(*entry.value_span)] or "true"
    return "True" if any(e.style == "override" for e in entries) else "true"


def replace(text: str, entry: Entry, value: Any, entries: Sequence[Entry]) -> str:
    """The text with the flag's value replaced (a bare flag gets one)."""
    start, end = entry.value_span
    if entry.style == "bare":
        if value is True:
            return text
        return splice(text, end, end, " " + in_shell(value, like=_truth_like(text, entries)))
    old = text[start:end]
    like = old if old.lower() in ("true", "false", "0", "1", "yes", "no") else _truth_like(text, entries)
    if entry.items:
        return splice(text, entry.items[0].key_span[0], _end(entry), in_shell(value, like=like))
    if isinstance(value, list | tuple):
        joined = "[" + ",".join(map(str, value)) + "]" if old.startswith("[") else ",".join(map(str, value))
        value = joined if entry.style == "override" or "," in old or entry.quote else value
    return splice(text, start, end, in_shell(value, like=like, quote=entry.quote))


def remove(text: str, entry: Entry) -> str:
    """The text without the flag; a line that becomes empty goes, and no backslash is left dangling."""
    low = entry.key_span[0]
    while low > 0 and text[low - 1] in "-+":
        low -= 1
    if entry.quote and entry.style == "override" and text[low - 1 : low] in ("'", '"'):
        low -= 1
    high = _own_end(text, entry)
    start, stop = line_start(text, low), line_end(text, high)
    rest = text[high:stop]
    if text[start:low].strip():
        while low > start and text[low - 1] in " \t":
            low -= 1
        return splice(text, low, high, "")
    if rest.strip() not in ("", "\\"):
        while high < stop and text[high] in " \t":
            high += 1
        return splice(text, low, high, "")
    if rest.strip() == "" and start > 0:
        # The last line of a command: the one before must not continue any more.
        before = line_start(text, start - 1)
        match = re.search(r"[ \t]*\\[ \t]*(\r?\n)\Z", text[before:start])
        if match:
            return text[: before + match.start()] + match[1] + text[stop:]
    return splice(text, start, stop, "")


def _spelled(text: str, entries: Sequence[Entry], key: str, value: Any, *, bare: bool) -> str:
    styles = [e.style for e in entries]
    if "." in key and styles.count("override") > styles.count("flag"):
        return f"{key}={in_shell(value, like=_truth_like(text, entries))}"
    if styles.count("override") > styles.count("flag") + styles.count("bare") + styles.count("flag="):
        return f"{key}={in_shell(value, like=_truth_like(text, entries))}"
    if bare and value is True:
        return f"--{key}"
    sign = "=" if styles.count("flag=") > styles.count("flag") else " "
    return f"--{key}{sign}{in_shell(value, like=_truth_like(text, entries))}"


def insert(
    text: str, entries: Sequence[Entry], key: str, value: Any, anchor: Entry | None, *, bare: bool
) -> str | None:
    """The text with a new flag beside ``anchor``, on a line of its own where the command has such lines."""
    own = [e for e in entries if e.style in ("flag", "flag=", "bare", "override") and not e.off]
    spelled = _spelled(text, own, key, value, bare=bare)
    if not own:
        words = [e for e in entries if e.key.startswith("@")]
        if not words:
            return None
        at = _own_end(text, words[-1])
        return splice(text, at, at, " " + spelled)
    near = _continued(text, own, anchor)
    at = _own_end(text, near)
    stop = line_end(text, at)
    low = near.key_span[0]
    start = line_start(text, low)
    alone = not text[start:low].strip(" \t-+'\"")
    if alone and _CONTINUED.search(text[at:stop]) and text[at:stop].strip() == "\\":
        return splice(text, stop, stop, f"{indent_of(text, low)}{spelled} \\{newline_at(text, at)}")
    if alone and start > 0 and _CONTINUED.search(text[line_start(text, start - 1) : start]):
        return splice(text, start, start, f"{indent_of(text, low)}{spelled} \\{newline_at(text, at)}")
    if alone and not text[at:stop].strip():  # one flag a line without backslashes: an array or a string
        newline = newline_at(text, at)
        lead = "" if text[at:stop].endswith("\n") else newline
        return splice(text, stop, stop, f"{lead}{indent_of(text, low)}{spelled}{newline if not lead else ''}")
    return splice(text, at, at, " " + spelled)


def _continued(text: str, own: Sequence[Entry], anchor: Entry | None) -> Entry:
    """The anchor, or the nearest flag whose line goes on."""
    near = anchor if anchor in own and anchor is not None else own[-1]

    def goes_on(entry: Entry) -> bool:
        at = _own_end(text, entry)
        return text[at : line_end(text, at)].strip() == "\\"

    if goes_on(near):
        return near
    candidates = [e for e in own if goes_on(e)]
    return min(candidates, key=lambda e: abs(e.key_span[0] - near.key_span[0])) if candidates else near


def insert_item(
    text: str, entries: Sequence[Entry], key: str, value: Any, anchor: Entry | None, *, bare: bool
) -> str | None:
    """The same in a YAML list of arguments, one item a line or within brackets."""
    own = [e for e in entries if e.style in ("flag", "flag=", "bare")]
    if not own:
        return None
    near = anchor if anchor in own and anchor is not None else own[-1]
    at = near.value_span[1] if near.style != "bare" else near.key_span[1]
    stop = line_end(text, at)
    line = text[line_start(text, near.key_span[0]) : stop]
    words = (
        [f"--{key}"]
        if bare and value is True
        else [f"--{key}={in_shell(value)}"]
        if near.style == "flag="
        else [f"--{key}", in_shell(value)]
    )
    dash = re.match(r"([ \t]*-[ \t]+)[\"']?-", line)
    if dash:
        newline = newline_at(text, at)
        new = "".join(f"{dash[1]}{_item(w)}{newline}" for w in words)
        return (
            splice(text, stop, stop, new)
            if text[:stop].endswith("\n")
            else splice(text, stop, stop, newline + new.rstrip(newline))
        )
    while at < len(text) and text[at] in "\"'":
        at += 1
    return splice(text, at, at, "".join(f', "{w}"' for w in words))


def _item(word: str) -> str:
    return f'"{word}"' if re.fullmatch(r"[0-9.eE+-]{1,40}|true|false", word) else word
