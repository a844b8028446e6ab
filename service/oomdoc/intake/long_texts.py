"""A text of very many lines, made shorter: its beginning, its end, and what is around telling lines.

What a line costs to read does not depend on its length much, so a megabyte of empty lines is dearer than a gigabyte of
log is after :mod:`oomdoc.intake.stream`. Those of the lines that state a failure, and their neighbours, stay.
"""

from __future__ import annotations

import re
from typing import Final

from oomkb.kept import lazy

MAX_LINES: Final = 24_000
"""Lines of one source that are read one by one."""
_ENDS: Final = 5_000
"""Lines that stay at the beginning and at the end."""
_UPDATES: Final = 64
"""Carriage returns of one line that stay."""
_BEFORE: Final = 150
_AFTER: Final = 60

# Together they cover the message or the traceback of every family that states a failure. Each costs a pass over a
# large log, and longer ones are found faster (the search skips further), so each is as long as every wording allows,
# and what never comes without another of them is left out: the kernel's "Out of memory: Killed process", the exit
# codes above torchrun's own traceback.
_TELLING: Final[tuple[str, ...]] = (
    "Traceback (most recent call last)",
    "ut of memory",
    " allocate memory",
    "RESOURCE_EXHAUSTED",
    "signal: Bus error",
    "exits with return code = ",
    "Signal 9 (SIGKILL)",
    "running low on memory",
    " oom_kill event",
)
_HIT: Final = lazy("|".join(re.escape(literal) for literal in _TELLING))


def telling() -> tuple[bytes, ...]:
    """The literals that tell a failure."""
    return tuple(literal.encode() for literal in _TELLING)


def is_long(text: str, most: int = MAX_LINES) -> bool:
    """Whether a text has more lines than that; carriage returns of progress bars separate lines too."""
    return text.count("\n") + text.count("\r") > most


def shortened(text: str, most: int = MAX_LINES) -> str:
    """``text`` where it has at most so many lines; else its first and last ones and those around telling ones.

    Of these the first count most: they fill two thirds of what is left, the last of them one third.
    """
    if not is_long(text, most):
        return text
    lines = [_without_updates(line) for line in text.split("\n")]
    if len(lines) <= most:
        return "\n".join(lines)
    ends = min(_ENDS, most // 4)
    kept = bytearray(len(lines))
    kept[:ends] = kept[-ends:] = b"\x01" * ends
    hits = [number for number, line in enumerate(lines) if _HIT.search(line)]
    left = most - 2 * ends
    left -= _mark(kept, hits, left - left // 3)
    _mark(kept, list(reversed(hits)), left)
    return "\n".join([line for line, keep in zip(lines, kept, strict=True) if keep])


def _without_updates(line: str) -> str:
    """A line that a progress bar wrote again and again, with its first and last states and what tells something."""
    if line.count("\r") <= _UPDATES:
        return line
    states = line.split("\r")
    half = _UPDATES // 2
    matching = [state for state in states[half:-half] if _HIT.search(state)]
    return "\r".join((*states[:half], *matching[:_UPDATES], *states[-half:]))


def _mark(kept: bytearray, hits: list[int], most: int) -> int:
    """Mark what is around the hits until so many lines are; how many were."""
    marked = 0
    for hit in hits:
        low, high = max(0, hit - _BEFORE), min(len(kept), hit + _AFTER)
        new = high - low - kept.count(1, low, high)
        if marked + new > most:
            break
        kept[low:high] = b"\x01" * (high - low)
        marked += new
    return marked
