"""Lines of a text by offset, and what most of them look like."""

from __future__ import annotations

from typing import Final

from oomkb.kept import lazy

_AFTER: Final = lazy(r"[ \t]{0,40},[ \t]{0,40}")
_BEFORE: Final = lazy(r",\s{0,200}\Z")


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


def with_line(text: str, at: int, line: str, like: int | None = None) -> str:
    """The text with a line behind the one that holds ``at``, ended as the one that holds ``like`` is."""
    stop = line_end(text, at)
    lead = "" if text[:stop].endswith("\n") else newline_at(text, 0)
    return splice(text, stop, stop, f"{lead}{line}{newline_at(text, at if like is None else like)}")


def without_member(text: str, low: int, high: int, *, trailing: bool = False) -> str:
    """The text without one of several things that commas part; its line goes too where it stands there alone.

    :param trailing: whether the comma before may stay behind when the last one goes.
    """
    after = _AFTER.match(text, high)
    end = after.end() if after is not None else high
    start, stop = line_start(text, low), line_end(text, end)
    alone = not text[start:low].strip() and not text[end:stop].strip()
    before = None if after is not None or (alone and trailing) else _BEFORE.search(text, max(0, low - 400), low)
    if before is not None:
        return splice(text, before.start(), high, "")
    return splice(text, start, stop, "") if alone else splice(text, low, end, "")
