"""Memory that grows: the same figure, printed again and again, larger each time; or people who say so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from oomdoc.evidence import Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.sieve import Vocabulary, candidates

__all__ = ["growth_signals"]

_FIGURES: Final = ("allocated_bytes", "still_used_bytes", "used_bytes", "reserved_bytes")
_RE: Final = patterns(__file__)
_SAYS: Final = _RE.sieved("says")


def growth_signals(signals: Sequence[Signal], prose: Sequence[Line], words: Vocabulary) -> list[Signal]:
    """``growth-over-steps`` where at least three figures of one writer rise, ``growth-stated`` where people say so."""
    out: list[Signal] = []
    series: dict[tuple[str, str, int | None], list[tuple[int, Signal]]] = {}
    for one in signals:
        if one.name not in ("memory-usage", "vllm-sleep", "deepspeed-memory"):
            continue
        for figure in _FIGURES:
            if figure in one.data:
                series.setdefault((f"{one.name}:{one.data.get('what', '')}", figure, one.rank), []).append(
                    (one.data[figure], one)
                )
                break
    for (_, figure, rank), points in series.items():
        values = [value for value, _ in points]
        rises = sum(b > a for a, b in pairwise(values))
        if len(values) >= 3 and rises >= 0.8 * (len(values) - 1) and values[-1] > 1.15 * values[0] > 0:
            data = {"first_bytes": values[0], "last_bytes": values[-1], "points": len(values), "figure": figure}
            data["steady"] = _is_steady(values)
            out.append(Signal("growth-over-steps", points[-1][1].span, MappingProxyType(data), rank))
    for line in candidates(_SAYS, prose, words):
        if (found := _SAYS.search(line.text)) is not None:
            out.append(Signal("growth-stated", line.span(found.start() + 1)))
            break
    return out


def _is_steady(values: Sequence[float]) -> bool:
    """Whether every figure lies as far above the last as any other: what a step keeps, not what longer samples take."""
    parts = [b - a for a, b in pairwise(values)]
    mean = sum(parts) / len(parts)
    return len(parts) >= _STEADY_PARTS and all(abs(part - mean) <= _STEADY * mean for part in parts)


_STEADY_PARTS: Final = 3
_STEADY: Final = 0.25
