"""Which lines speak of another run: what stands under "This works:" is not what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomdoc.intake.kinds import Kind
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns

__all__ = ["other_runs"]

_RE: Final = patterns(__file__)
_MARKS: Final = frozenset(":：-–—")
"""What every such end holds one of."""


def other_runs(lines: Sequence[Line], kinds: Sequence[Kind]) -> list[bool]:
    """For each line whether it stands under a heading that says that this run was fine."""
    out: list[bool] = []
    fine = False
    for line, kind in zip(lines, kinds, strict=True):
        if kind in ("prose", "config", "log"):
            text = line.text.strip()
            if len(text) < 120:
                end = text[-12:]
                if not _MARKS.isdisjoint(end) and _RE["ends"].search(end):
                    fine = bool(_RE["well"].search(text)) and not _RE["ill"].search(text)
            elif kind == "prose" and len(text) > 120:
                fine = False
        out.append(fine)
    return out
