"""Memory that grows: the same figure, printed again and again, larger each time; or people who say so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from oomdoc.evidence import Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.numbers import to_bytes
from oomdoc.intake.patterns import patterns
from oomdoc.intake.sieve import Vocabulary, candidates

_FIGURES: Final = ("allocated_bytes", "still_used_bytes", "used_bytes", "reserved_bytes")
_RE: Final = patterns(__file__)
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")
_MAX_LINES: Final = 20_000
_WIDTH: Final = 200


def growth_signals(
    signals: Sequence[Signal], lines: Sequence[Line], prose: Sequence[Line], words: Vocabulary
) -> list[Signal]:
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
    for shape, printed in _by_shape(lines).items():
        series[f"lines:{shape}", "allocated_bytes", printed[0][1].rank] = printed
    for (_, figure, rank), points in series.items():
        values = [value for value, _ in points]
        rises = sum(b > a for a, b in pairwise(values))
        if len(values) >= 3 and rises >= 0.8 * (len(values) - 1) and values[-1] > 1.15 * values[0] > 0:
            data = {"first_bytes": values[0], "last_bytes": values[-1], "points": len(values), "figure": figure}
            data["steady"] = _is_steady(values)
            out.append(Signal("growth-over-steps", points[-1][1].span, MappingProxyType(data), rank))
    for line in candidates(_RE["says"], prose, words):
        if (found := _RE["says"].search(line.text)) is not None:
            out.append(Signal("growth-stated", line.span(found.start() + 1)))
            break
    return out


def _by_shape(lines: Sequence[Line]) -> dict[str, list[tuple[int, Signal]]]:
    """Figures of memory in lines that differ in digits only and tell of steps."""
    rows: dict[str, list[Line]] = {}
    for line in lines[:_MAX_LINES]:
        text = line.text[:_WIDTH]
        if any(map(str.isdigit, text)):
            rows.setdefault(line.tag + "".join(text.translate(_NO_DIGITS).split()), []).append(line)
    found: dict[str, list[tuple[int, Signal]]] = {}
    figure = _RE["figure"]
    for shape, alike in rows.items():
        # What differs are digits and blanks, of which no word of a figure's expression has any.
        if len(alike) < _FEWEST or not figure.may_match(shape.lower()) or _RE["steps"].search(alike[0].text) is None:
            continue
        for line in alike:
            if (size := figure.search(line.text[:_WIDTH])) is not None:
                shown = Signal("memory-usage", line.span(), rank=line.rank)
                held = to_bytes(size["n"] or size["alone"], size["unit"] or size["of"])
                found.setdefault(shape, []).append((held, shown))
    return found


_FEWEST: Final = 4
"""Lines of one shape from which they are a series."""


def _is_steady(values: Sequence[float]) -> bool:
    """Whether every figure lies as far above the last as any other: what a step keeps, not what longer samples take."""
    parts = [b - a for a, b in pairwise(values)]
    mean = sum(parts) / len(parts)
    return len(parts) >= _STEADY_PARTS and all(abs(part - mean) <= _STEADY * mean for part in parts)


_STEADY_PARTS: Final = 3
_STEADY: Final = 0.25
