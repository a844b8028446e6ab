"""Settings that a text gives, and functions that it calls: what stands there already is not advised again.

A key is its last part, in lower case with underscores; what a message of a program recommends is no setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from oomdoc.evidence import Document
from oomkb.kept import compiled

Assigned = frozenset[tuple[str, str]]
"""Keys with their values."""

_EQUALS: Final = compiled(r"(?<![\w.-])-{0,2}([A-Za-z_][\w.-]{2,80})[\"']?\s{0,2}[=:]\s{0,2}(?=[\"']?([\w.+/-]{1,80}))")
_OPTION: Final = compiled(r"(?<![\w-])--([A-Za-z][\w.-]{2,80})(?:\s{1,4}[\"']?([\w.+/][\w.+/-]{0,80}))?")
_CALL: Final = compiled(r"(?<![\w.])([A-Za-z_][\w.]{5,80})\(")
_ADVISED: Final = ("try setting", "you can set", "consider setting")
"""Words by which programs recommend a setting in their messages."""
_MAX_CHARACTERS: Final = 400_000
"""Of a text that is looked through."""
_MAX_CHARACTERS_OF_LINE: Final = 2000


def assigned_in(lines: Iterable[str], documents: Iterable[Document] = ()) -> Assigned:
    """The settings in lines of a text and in configurations; a line that asks about one does not give it."""
    found = {(key_of(s.key.lstrip("-")), str(s.value).lower()) for document in documents for s in document.settings}
    left = _MAX_CHARACTERS
    for line in lines:
        left -= min(len(line), _MAX_CHARACTERS_OF_LINE)
        if left < 0:
            break
        if not any(mark in line for mark in "=:-(") or line.rstrip().endswith(("?", "？")):
            continue
        low = line[:_MAX_CHARACTERS_OF_LINE].lower()
        if not any(words in low for words in _ADVISED):
            found.update(_pairs(low))
    return frozenset(found)


def _pairs(low: str) -> Iterator[tuple[str, str]]:
    for pattern in (_EQUALS, _OPTION):
        for match in pattern.finditer(low):
            if key := key_of(match[1]):
                yield key, (match[2] or "true").rstrip(".,")
    for match in _CALL.finditer(low):
        yield key_of(match[1]), "()"


def key_of(name: str) -> str:
    """A key as it is compared."""
    return name.rpartition(".")[2].lower().replace("-", "_")
