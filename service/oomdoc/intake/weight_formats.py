"""Formats in which weights are stored, by the names that checkpoints and people give them."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.patterns import patterns

_RE: Final = patterns(__file__)
FORMATS: Final = _RE.group("format")
"""Expressions by the format they name, in the job's words; ``int8:2`` is ``int8`` where none of the others is named."""
_OF_FILES: Final = tuple(name for name in FORMATS if name not in ("int8:2", "nf4", "int4", "none"))
"""Formats that only stored checkpoints have: with any other word for bits a program may quantize as it loads."""
_MAX_BESIDE: Final = 24
"""Characters that may lie around a size and hold the format."""


def stored_beside(text: str, start: int, end: int) -> str | None:
    """The format that stands beside a size of a model at ``[start, end)``: ``70B AWQ``, ``a GPTQ 32B``."""
    behind = text[end : end + _MAX_BESIDE]
    joint = _RE["joint"].match(behind)
    before = _RE["leading"].search(text[max(0, start - _MAX_BESIDE) : start])
    for name in _OF_FILES:
        if joint is not None and FORMATS[name].match(behind, joint.end()) is not None:
            return name
        if before is not None and FORMATS[name].fullmatch(before["word"]) is not None:
            return name
    return None
