"""Changing Python: keyword arguments, assignments, ``os.environ`` lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.values import spell
from oomdoc.intake.configs.writers.lines import indent_of, line_end, line_start, newline_at, splice, without_member
from oomdoc.intake.configs.writers.spelling import in_python


def _quote(text: str) -> str:
    return "'" if text.count("'") > text.count('"') else '"'


def replace(text: str, entry: Entry, value: Any) -> str:
    """The text with the value replaced; quotes are kept."""
    start, end = entry.value_span
    if entry.quote and isinstance(value, str):
        return splice(text, start, end, value)
    if entry.quote:
        start, end = start - 1, end + 1
    return splice(text, start, end, in_python(value, _quote(text)))


_WORD: Final = re.compile(r"[\w.:/+-]{1,200}")


def replace_word(text: str, entry: Entry, value: Any) -> str | None:
    """The text with another value of a flag, where a program puts its command together as a list of words."""
    old = text[slice(*entry.value_span)]
    if entry.style == "bare" or entry.items or isinstance(entry.value, bool) is not (old in ("True", "False")):
        return None  # whether a flag without a value is there is for the program to say
    if not entry.quote:
        return splice(text, *entry.value_span, in_python(value, _quote(text)))
    new = spell(value)
    return splice(text, *entry.value_span, new) if _WORD.fullmatch(new) and not isinstance(value, bool) else None


def remove(text: str, entry: Entry) -> str:
    """The text without the keyword argument."""
    low, high = entry.key_span[0], entry.value_span[1] + (1 if entry.quote else 0)
    if entry.shared:
        match = re.compile(r"\s*=\s*[\w.]{1,200}").match(text, entry.key_span[1])
        high = match.end() if match else high
    return without_member(text, low, high, trailing=True)


def insert_argument(
    text: str, call: Entry, arguments: Sequence[Entry], name: str, value: Any, anchor: Entry | None
) -> str:
    """The text with a new keyword argument in a call."""
    start, end = call.value_span
    spelled = f"{name}={in_python(value, _quote(text))}"
    if not arguments:
        close = end - 1
        inside = text[text.find("(", start) + 1 : close].strip()
        return splice(text, close, close, (", " if inside and not inside.endswith(",") else "") + spelled)
    near = anchor if anchor is not None and anchor in arguments else arguments[-1]
    low = near.key_span[0]
    own_line = not text[line_start(text, low) : low].strip()
    if not own_line:
        return splice(text, low, low, spelled + ", ")
    newline, indent = newline_at(text, low), indent_of(text, low)
    following = [a for a in arguments if a.key_span[0] > low]
    at = line_start(text, following[0].key_span[0]) if following else line_start(text, low)
    if following and text[at : following[0].key_span[0]].strip():
        at = line_start(text, low)
    if not following and _has_trailing_comma(text, near, end):
        at = line_end(text, _argument_end(text, near))
    return splice(text, at, at, f"{indent}{spelled},{newline}")


def _argument_end(text: str, entry: Entry) -> int:
    if entry.shared:
        stop = re.compile(r"[^,)\n]{0,200}").match(text, entry.key_span[1])
        return stop.end() if stop else entry.key_span[1]
    return entry.value_span[1] + (1 if entry.quote else 0)


def _has_trailing_comma(text: str, entry: Entry, end: int) -> bool:
    at = _argument_end(text, entry)
    rest = text[at:end]
    return re.match(r"[ \t]*,[ \t]*(?:#[^\n]*)?\r?\n", rest) is not None


def is_moved(text: str, start: int, end: int) -> bool:
    """Whether the model that a call loads is moved to a device afterwards, by a chained call or by its name.

    A model whose weights bitsandbytes quantises is placed while it is loaded, and refuses to be moved afterwards
    (transformers ``modeling_utils.py``: "`.to` is not supported for `4-bit` or `8-bit` bitsandbytes models").

    :param start: where the call begins.
    :param end: behind its closing bracket.
    """
    named = re.search(r"(\w{1,100})[ \t]*=[ \t]*[\w.]*$", text[max(0, start - 200) : start])
    if named and re.search(rf"(?<![\w.]){named[1]}\.(?:to|cuda)\(", text[end:]):
        return True
    return re.compile(r"\.(?:to|cuda)\(").match(text, end) is not None
