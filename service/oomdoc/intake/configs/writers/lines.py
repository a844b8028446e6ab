"""Lines of a text by offset, and what most of them look like."""

from __future__ import annotations


def line_start(text: str, at: int) -> int:
    """Where the line that holds ``at`` begins."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Where the line that holds ``at`` ends, its line break included."""
    stop = text.find("\n", at)
    return len(text) if stop < 0 else stop + 1


def newline_at(text: str, at: int) -> str:
    """The line break in use around ``at``: the line's own, else the text's first."""
    stop = text.find("\n", at)
    if stop < 0:
        stop = text.rfind("\n", 0, at)
    return "\r\n" if stop > 0 and text[stop - 1] == "\r" else "\n"


def indent_of(text: str, at: int) -> str:
    """The blanks the line that holds ``at`` begins with."""
    start = line_start(text, at)
    stop = start
    while stop < len(text) and text[stop] in " \t":
        stop += 1
    return text[start:stop]


def splice(text: str, start: int, end: int, new: str) -> str:
    """The text with a stretch replaced."""
    return text[:start] + new + text[end:]
