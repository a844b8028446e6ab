"""Whether a mention of a failure says that it happens: not where it is denied, feared, asked about or solved."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.patterns import patterns

__all__ = ["EXPECTED", "inside_a_name", "is_past", "stands"]

_RE: Final = patterns(__file__)
_I: Final = re.IGNORECASE | re.ASCII
EXPECTED: Final = re.compile(
    r"\b(?:expected|desired) (?:behaviou?r|result|outcome)|预期(?:行为|结果)?|期望(?:行为|结果)?", _I
)


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """The bounds of the sentence around ``text[start:end]``, its mark included; at most 300 characters each way."""
    first = max(0, start - 300)
    begins = [m.end() for m in _RE["ends"].finditer(text, first, start)]
    stop = _RE["ends"].search(text, end, end + 300)
    return (begins[-1] if begins else first), (stop.end() if stop else min(len(text), end + 300))


def stands(text: str, start: int, end: int, *, expected: bool = False) -> bool:
    """Whether the mention ``text[start:end]`` says that it happened or happens.

    :param expected: whether it stands under "Expected behavior": what is denied there is what happened.
    """
    first, last = _sentence(text, start, end)
    turns = [m.end() for m in _RE["turns"].finditer(text, first, start)]
    before = text[turns[-1] if turns else first : start]
    turn = _RE["turns"].search(text, end, last)
    after = text[end : turn.start() if turn else last]
    if (denied := _RE["denied"].search(before)) is not None:
        return expected or ("without" in denied[0].lower() and _RE["cannot"].search(before) is not None)
    if _RE["supposed"].search(before) or _RE["solved"].match(after):
        return False
    if not text[first:last].rstrip().endswith(("?", "？", "吗", "呢")):
        return True
    pauses = [m.end() for m in _RE["pauses"].finditer(text, first, start)]
    pause = _RE["pauses"].search(text, end, last)
    clause = text[pauses[-1] if pauses else first : pause.start() if pause else last]
    return not (_RE["yes_or_no"].search(clause) and not _RE["asked_about"].search(clause))


def is_past(text: str, start: int, end: int) -> bool:
    """Whether the sentence tells of an earlier time."""
    first, last = _sentence(text, start, end)
    return _RE["past"].search(text, first, last) is not None


def inside_a_name(text: str, start: int, end: int) -> bool:
    """Whether the mention is a part of an option, a path or a file's name: ``--oom-score``, ``run_oom.sh``."""
    found = text[start:end]
    if found[:1] > "\x7f":
        return False
    dotted = found.lower().startswith("outofmemory")
    before = text[max(0, start - 1) : start]
    return bool(_RE["named_before"].match(before) and not (dotted and before == ".")) or bool(
        _RE["named_after"].match(text, end, end + 2) and found[-1:].isascii() and not dotted
    )
