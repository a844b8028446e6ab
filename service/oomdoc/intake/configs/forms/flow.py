"""Braces and brackets: JSON, JSON with comments and trailing commas, flow YAML. Tolerant, linear, bounded in depth."""

from __future__ import annotations

import re
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry, FormError
from oomdoc.intake.configs.values import as_scalar
from oomkb.kept import compiled

_DEPTH: Final = 60
_BLANK: Final = compiled(r"[\s,]+")
_BARE: Final = compiled(r"[^\s,:{}\[\]\"'#][^,{}\[\]\n#]*")
_BAREKEY: Final = compiled(r"[^\s,:{}\[\]\"'#][^,:{}\[\]\n#]*")
_STRING: Final = {'"': compiled(r'"((?:[^"\\]|\\.)*)"', re.S), "'": compiled(r"'((?:[^'\\]|\\.|'')*)'", re.S)}
_ESCAPE: Final = compiled(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_PLAIN: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else _PLAIN.get(m[1], m[1]), text)


class _Flow:
    """A cursor over the text; fills ``entries``."""

    def __init__(self, text: str, end: int) -> None:
        self.text, self.end = text, end
        self.entries: list[Entry] = []

    def skip(self, at: int) -> int:
        """Past blanks, commas and comments."""
        text, end = self.text, self.end
        while at < end:
            match = _BLANK.match(text, at, end)
            if match:
                at = match.end()
            elif text[at] == "#" or text.startswith("//", at):
                line = text.find("\n", at, end)
                at = end if line < 0 else line
            elif text.startswith("/*", at):
                close = text.find("*/", at, end)
                at = end if close < 0 else close + 2
            else:
                return at
        return at

    def scalar(self, at: int, *, key: bool = False) -> tuple[Any, int, str]:
        """A quoted or bare scalar: value, end, quote."""
        char = self.text[at]
        if char in _STRING:
            match = _STRING[char].match(self.text, at, self.end)
            if match is None:
                raise FormError("unclosed string")
            return _unescape(match[1]), match.end(), char
        match = (_BAREKEY if key else _BARE).match(self.text, at, self.end)
        if match is None:
            raise FormError("neither value nor end")
        raw = match[0].rstrip()
        return (raw if key else as_scalar(raw)), at + len(raw), ""

    def value(self, at: int, path: str, depth: int) -> tuple[Any, int, str]:
        """Any value from ``at``: value, end, quote."""
        if depth > _DEPTH:
            raise FormError("nested too deeply")
        if at >= self.end:
            raise FormError("ends early")
        if self.text[at] == "{":
            return (*self.mapping(at + 1, path, depth), "")
        if self.text[at] == "[":
            return (*self.sequence(at + 1, path, depth), "")
        return self.scalar(at)

    def mapping(self, at: int, path: str, depth: int) -> tuple[dict[str, Any], int]:
        """After ``{``; an end of text closes it too."""
        out: dict[str, Any] = {}
        while True:
            at = self.skip(at)
            if at >= self.end:
                return out, at
            if self.text[at] == "}":
                return out, at + 1
            if self.text[at] in ":]":
                raise FormError("a value without a key")
            start = at
            name, at, _ = self.scalar(at, key=True)
            key_span = (start, at)
            at = self.skip(at)
            if at >= self.end or self.text[at] != ":":
                out[str(name)] = None
                continue
            at = self.skip(at + 1)
            full = f"{path}.{name}" if path else str(name)
            index = len(self.entries)
            start = at
            value, at, quote = self.value(at, full, depth + 1)
            out[str(name)] = value
            entry = Entry(key=full, value=value, key_span=key_span, value_span=(start, at), style="pair", quote=quote)
            self.entries.insert(index, entry)

    def sequence(self, at: int, path: str, depth: int) -> tuple[list[Any], int]:
        """After ``[``; an end of text closes it too."""
        out: list[Any] = []
        while True:
            at = self.skip(at)
            if at >= self.end:
                return out, at
            if self.text[at] == "]":
                return out, at + 1
            if self.text[at] in ":}":
                raise FormError("a mapping's mark in a list")
            value, at, _ = self.value(at, f"{path}[]", depth + 1)
            out.append(value)


def parse_flow(text: str, at: int, end: int, path: str = "") -> tuple[Any, int, list[Entry]]:
    """Read one ``{...}`` or ``[...]`` that starts at ``at``.

    :returns: the value, where it ends, and an entry for every key in it (outer before inner).
    :raises FormError: when it is no such thing.
    """
    flow = _Flow(text, end)
    value, stop, _ = flow.value(at, path, 0)
    return value, stop, flow.entries
