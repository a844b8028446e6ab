"""Memory that people tell in sentences: how much was in use, how much was reserved, how it grew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary

__all__ = ["read_memory"]

_G: Final = r"(?P<{}>\d{{1,3}}(?:\.\d{{1,3}})?) ?(?:GiB|GB|G)(?![A-Za-z])"
_SENTENCES: Final[tuple[tuple[str, Expression, float], ...]] = tuple(
    (name, Expression(text, re.IGNORECASE | re.ASCII), sure)
    for name, text, sure in (
        (
            "process_gib",
            r"(?<![\d.])(?P<v>\d{1,3}(?:\.\d{1,3})?) ?(?:GiB|GB|G)? ?(?:of"
            r"|/|out of) ?\d{1,3}(?:\.\d{1,2})? ?(?:GiB|GB|G) (?:is |are "
            r"|was )?(?:used|in use)",
            0.7,
        ),
        (
            "process_gib",
            r"(?:gpu|vram|memory|显存)(?: memory)?(?: usage| use| consumption"
            r"|占用)? (?:goes|went|climbs|climbed|rises|rose|jumps|jumped|shoots"
            rf"|spikes|spiked|up|上升|涨|飙升){{1,2}} ?(?:up )?(?:to|到|至) ?(?:about "
            rf"|around |over )?{_G.format('v')}",
            0.6,
        ),
        (
            "reserved_unallocated_gib",
            rf"{_G.format('v')} (?:is |was |are )?reserved (?:by PyTorch )?but (?:is )?(?:unallocated"
            r"|not allocated|unused)",
            0.8,
        ),
        (
            "gpu_memory_utilization",
            r"(?<![\d.])(?P<v>0\.\d{1,3}) (?:for |of )?gpu[_ -]mem(?:ory)?[_ -]util",
            0.7,
        ),
        (
            "gpu_memory_utilization",
            r"gpu[ -]memory[ -]utili[sz]ation(?: (?:is|of|to|at|was|set|down|up)){0,3} ?[=:]? ?(?P<v>0\.\d{1,3})(?!\d)",
            0.7,
        ),
        ("allocated_gib", rf"{_G.format('v')} is allocated by PyTorch", 0.6),
        (
            "tried_gib",
            r"(?:tr(?:y|ies|ied|ying) to allocate|尝试分配|申请) (?:about |around "
            rf"|another )?{_G.format('v')}",
            0.6,
        ),
        (
            "free_gib",
            rf"(?:only |just |还剩|剩余|仅剩) ?{_G.format('v')} (?:is |was |of )?(?:gpu memory )?(?:free"
            r"|left)",
            0.6,
        ),
    )
)


_SIEVE: Final = Sieve(((row[1],), row) for row in _SENTENCES)


def read_memory(lines: list[Line], words: Vocabulary) -> Iterator[Fact]:
    """Facts in GiB; an allocator's own message in a log is surer."""
    for line, rows in _SIEVE.over(lines, words):
        for name, pattern, sure in rows:
            for found in pattern.finditer(line.text):
                yield Fact(name, float(found["v"]), line.span(found.start() + 1), "prose", sure)
