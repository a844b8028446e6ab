"""YAML line by line: settings with their places, from whole files and from cut-out pieces alike.

A reader of lines rather than a YAML library: what people paste is cut off, re-indented and templated, every value's
place must be known to the character, and aliases must not be able to multiply. Block and flow mappings, lists, quoted
scalars, block scalars, anchors, merged sections and comments are understood.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry, FormError
from oomdoc.intake.configs.forms.flow import parse_flow
from oomdoc.intake.configs.values import as_scalar, unquote
from oomkb.dataclass import dataclass
from oomkb.kept import compiled

_KEY: Final = compiled(
    r"(?:\"([^\"\n]{1,200})\"|'([^'\n]{1,200})'|([^\s#:,\[\]{}\"'&*!|>%@`][^:#\n\"'{}\[\]]{0,120}?))"
    r"[ \t]{0,20}:(?=[ \t]|$)"
)
_COMMENT: Final = compiled(r"[ \t]#")
_QUOTED: Final = compiled(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\n]|\'\')*\'')
_FOLDED: Final = compiled(
    r'(?:"(?:[^"\\\n]|\\.|\n[ \t])*"|\'(?:[^\'\n]|\'\'|\n[ \t])*\')(?=[ \t]*(?:#[^\n]*)?\r?$)', re.M | re.S
)
"""A quoted value that goes on in further lines."""
_MAX_FOLDED: Final = 20_000
_LINE_BREAK: Final = compiled(r"\s*\n\s*")
_ANCHOR: Final = compiled(r"&([\w.-]{1,60})[ \t]*")
_TAG: Final = compiled(r"!{1,2}[\w./:-]{0,80}[ \t]*")
_BLOCK: Final = compiled(r"[|>][+-]?[0-9]?[+-]?[ \t]*(?:#.*)?$")
_ALIAS: Final = compiled(r"\*([\w.-]{1,60})")
_STRUCTURE: Final = compiled(rf"-[ \t]|{_KEY.pattern}")
"""What begins an item or a setting, and so no further line of a text."""
_MAX_DEPTH: Final = 60
_MAX_MERGED: Final = 2_000
"""Settings of other sections that are looked at to be taken over."""
_MAX_KEY: Final = 2_000
_DOT: Final = compiled(r"[.]")


@dataclass(frozen=True, slots=True)
class Block:
    """A block scalar (``|`` or ``>``): its key, where its lines are, and whether their breaks are blanks."""

    key: str
    start: int
    end: int
    folded: bool


class _Reader:
    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.at, self.end = text, start, end
        self.entries: list[Entry] = []
        self.blocks: list[Block] = []
        self.stack: list[tuple[int, str]] = [(-1, "")]
        self.lists: dict[str, list[Entry]] = {}
        self.anchors: dict[str, Any] = {}
        self.sections: dict[str, str] = {}
        """Anchors of sections, and where these are."""
        self.merges: list[tuple[str, str]] = []
        """Sections that others take over, and which."""
        self.open_block: tuple[int, Block] | None = None
        self.sentence: tuple[int, list[Entry]] | None = None
        """The list that ends in a plain text of several words, and how deep the lines are in which it may go on."""

    def run(self) -> None:
        while self.at < self.end:
            stop = self.text.find("\n", self.at, self.end)
            stop = self.end if stop < 0 else stop
            next_line = min(stop + 1, self.end) if stop < self.end else self.end
            close = stop - 1 if stop > self.at and self.text[stop - 1] == "\r" else stop
            self.next = next_line
            self.line(self.at, close)
            self.at = self.next
        self.close_block()

    def start_block(self, key: str, at: int, indent: int) -> None:
        self.open_block = indent, Block(key, self.next, self.next, self.text[at] == ">")

    def close_block(self) -> None:
        if self.open_block is not None and self.open_block[1].end > self.open_block[1].start:
            self.blocks.append(self.open_block[1])
        self.open_block = None

    def line(self, start: int, stop: int) -> None:
        text = self.text
        body = text[start:stop]
        stripped = body.lstrip(" \t")
        indent = len(body) - len(stripped)
        if self.open_block is not None:
            parent, block = self.open_block
            if not stripped or indent > parent:
                self.open_block = parent, replace(block, end=stop)
                return
            self.close_block()
        open_, self.sentence = self.sentence, None
        if not stripped or stripped[0] == "#" or stripped.startswith(("%", "...")):
            return
        if stripped.startswith("---"):
            self.stack = [(-1, "")]
            return
        at = start + indent
        if open_ is not None and indent >= open_[0] and not _STRUCTURE.match(text, at, stop):
            self.go_on(open_[1], at, stop)
            self.sentence = open_
            return
        if len(self.stack) > _MAX_DEPTH:
            raise FormError("nested too deeply")
        at, indent = self.dashes(at, stop, indent)
        if at < stop:
            self.content(at, stop, indent)

    def go_on(self, entries: list[Entry], at: int, stop: int) -> None:
        """A further line of a plain text: it belongs to the last entry."""
        comment = _COMMENT.search(self.text, at, stop)
        line = self.text[at : comment.start() if comment else stop].rstrip()
        span = (entries[-1].value_span[0], at + len(line))
        entries[-1] = replace(entries[-1], value=f"{entries[-1].value} {line}", value_span=span)

    def dashes(self, at: int, stop: int, indent: int) -> tuple[int, int]:
        """Past ``- - `` prefixes; the items become list positions of the stack."""
        text = self.text
        count = 0
        while at < stop and text[at] == "-" and (at + 1 >= stop or text[at + 1] in " \t") and count < 10:
            # A list may stand at its key's own indentation.
            while len(self.stack) > 1 and (
                self.stack[-1][0] > indent or (self.stack[-1][0] == indent and self.stack[-1][1].endswith("[]"))
            ):
                self.stack.pop()
            self.stack.append((indent, self.stack[-1][1] + "[]"))
            step = 1
            while at + step < stop and text[at + step] in " \t":
                step += 1
            at, indent, count = at + step, indent + step, count + 1
        return at, indent

    def content(self, at: int, stop: int, indent: int) -> None:
        text = self.text
        match = _KEY.match(text, at, stop)
        if match is None:
            self.item(at, stop, indent)
            return
        name = next(g for g in match.groups() if g is not None).strip()
        while len(self.stack) > 1 and self.stack[-1][0] >= indent:
            self.stack.pop()
        parent = self.stack[-1][1]
        key = f"{parent}.{name}" if parent else name
        start = match.end()
        while start < stop and text[start] in " \t":
            start += 1
        self.value(key, (match.start(), match.end() - 1), start, stop, indent)

    def item(self, at: int, stop: int, indent: int) -> None:
        """A plain element of a list, or a stray line."""
        while len(self.stack) > 1 and self.stack[-1][0] >= indent:
            self.stack.pop()
        path = self.stack[-1][1]
        if not path.endswith("[]"):
            return
        if _BLOCK.match(self.text, at, stop):
            self.start_block(path, at, self.stack[-1][0])
            return
        value, span, quote = self.scalar(at, stop)
        if value is None and span[0] == span[1]:
            return
        entry = Entry(key=path, value=value, key_span=(at, at), value_span=span, style="item", quote=quote)
        self.emit(entry, self.lists.setdefault(path, []), indent)

    def emit(self, entry: Entry, to: list[Entry], indent: int) -> None:
        to.append(entry)
        if not entry.quote and isinstance(entry.value, str) and " " in entry.value:
            self.sentence = indent, to

    def scalar(self, at: int, stop: int) -> tuple[Any, tuple[int, int], str]:
        """A scalar without its comment: value, place, quote."""
        text = self.text
        match = _QUOTED.match(text, at, stop)
        if match is None and text[at : at + 1] in ("'", '"'):
            match = _FOLDED.match(text, at, min(self.end, at + _MAX_FOLDED))
            line = text.find("\n", match.end(), self.end) if match else stop
            self.next = max(self.next, line + 1 if line >= 0 else self.end)
        if match:
            inner, quote = unquote(_LINE_BREAK.sub(" ", match[0]))
            return inner, match.span(), quote
        comment = _COMMENT.search(text, at - 1 if at else 0, stop)
        last = comment.start() if comment else stop
        raw = text[at:last].rstrip()
        if raw.startswith("*"):
            return self.anchors.get(raw[1:], raw), (at, at + len(raw)), ""
        return as_scalar(raw), (at, at + len(raw)), ""

    def value(self, key: str, key_span: tuple[int, int], at: int, stop: int, indent: int) -> None:
        text = self.text
        anchor = _ANCHOR.match(text, at, stop)
        at = anchor.end() if anchor else at
        tag = _TAG.match(text, at, stop)
        at = tag.end() if tag else at
        if (at < stop and text[at] in "*[" and key.rpartition(".")[2] == "<<") or text[at : at + 1] == "*":
            names = [name for name in _ALIAS.findall(text, at, stop) if name in self.sections]
            self.merges += [(self.sections[name], key.removesuffix("<<").removesuffix(".")) for name in names]
            if names:
                return
        if at >= stop or text[at] == "#":
            if anchor:
                self.sections[anchor[1]] = key
            self.stack.append((indent, key))
            self.entries.append(Entry(key=key, value=None, key_span=key_span, value_span=(at, at), style="pair"))
            return
        if _BLOCK.match(text, at, stop):
            self.start_block(key, at, indent)
            return
        if text[at] in "{[":
            try:
                value, close, inner = parse_flow(text, at, min(self.end, at + 100_000), key)
            except FormError:
                value, close, inner = None, at, []
            if close > at:
                self.entries.append(
                    Entry(key=key, value=value, key_span=key_span, value_span=(at, close), style="pair")
                )
                self.entries.extend(inner)
                line = text.find("\n", close - 1, self.end)
                self.next = max(self.next, self.end if line < 0 else line + 1)
                return
        value, span, quote = self.scalar(at, stop)
        if anchor and not isinstance(value, list | dict):
            self.anchors[anchor[1]] = value
        entry = Entry(key=key, value=value, key_span=key_span, value_span=span, style="pair", quote=quote)
        self.emit(entry, self.entries, indent + 1)


def parse_yaml(text: str, start: int = 0, end: int | None = None) -> tuple[list[Entry], list[Block]]:
    """The settings of a piece of YAML, lists of scalars joined under their key, and its block scalars.

    Keys are dotted paths, ``[]`` for an element of a list. A mapping's own key has the value ``None``.

    :raises FormError: when it is nested beyond reason.
    """
    reader = _Reader(text, start, len(text) if end is None else end)
    reader.run()
    lists = reader.lists
    out: list[Entry] = []
    for entry in reader.entries:
        items = lists.pop(entry.key + "[]", None) if entry.value is None else None
        if items:
            span = (items[0].value_span[0], items[-1].value_span[1])
            out.append(replace(entry, value=[i.value for i in items], value_span=span, items=tuple(items)))
        else:
            out.append(entry)
    return _merged(out, reader.merges), reader.blocks


def _merged(entries: list[Entry], merges: list[tuple[str, str]]) -> list[Entry]:
    """The settings with those of sections that others take over by their anchors: own ones first, then the first's."""
    sections, room = {section for section, _ in merges}, _MAX_MERGED
    holds: dict[str, list[Entry]] = {}
    seen, taken = {entry.key for entry in entries}, list[Entry]()

    def hold(entry: Entry) -> None:
        for dot in _DOT.finditer(entry.key) if sections else ():
            if (section := entry.key[: dot.start()]) in sections:
                holds.setdefault(section, []).append(entry)

    for entry in entries:
        hold(entry)
    for section, into in merges:
        inner = holds.get(section, [])[:room]
        room -= len(inner)
        for entry in inner:
            name = entry.key.removeprefix(f"{section}.")
            key = f"{into}.{name}" if into else name
            if key not in seen and len(key) <= _MAX_KEY:
                seen.add(key)
                taken.append(replace(entry, key=key, shared=True))
                hold(taken[-1])
    return [*taken, *entries]
