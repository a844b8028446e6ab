"""Which lines speak of another run: what stands under "This works:" is not what failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from oomdoc.intake.kinds import Kind
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression

__all__ = ["other_runs"]

_ENDS: Final = Expression(r"(?:[:：]|[-–—] ?(?:OK|GOOD|BAD|FAIL\w{0,3}|OOM|✅|❌))\s{0,3}\Z", re.IGNORECASE)
_MARKS: Final = frozenset(":：-–—")
"""What every such end holds one of."""
_WELL: Final = Expression(
    r"(?:能跑|可以跑|能训|成功|正常|没问题|works?\b|worked|working|runs? fine|- ?OK"
    r"|- ?GOOD|✅|no oom|without oom|succe\w{2,8})",
    re.IGNORECASE,
)
_ILL: Final = Expression(
    r"(?:oom|失败|报错|爆|溢出|不行|fails?\b|failed|failing|error|crash|BAD"
    r"|❌|not work|doesn'?t work|out of memory)",
    re.IGNORECASE,
)


def other_runs(lines: Sequence[Line], kinds: Sequence[Kind]) -> list[bool]:
    """For each line whether it stands under a heading that says that this run was fine."""
    out: list[bool] = []
    fine = False
    for line, kind in zip(lines, kinds, strict=True):
        if kind in ("prose", "config", "log"):
            text = line.text.strip()
            if len(text) < 120:
                end = text[-12:]
                if not _MARKS.isdisjoint(end) and _ENDS.search(end):
                    fine = bool(_WELL.search(text)) and not _ILL.search(text)
            elif kind == "prose" and len(text) > 120:
                fine = False
        out.append(fine)
    return out
