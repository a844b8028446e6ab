"""A horizontal stacked bar in characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_black")
_BLOCKS: Final = "█▓▒░▞▚·"


def largest_terms(terms: Mapping[str, float], keep: int = 5) -> list[tuple[str, float]]:
    """The largest terms in order; the rest is summed under ``other``."""
    ordered = sorted(((n, s) for n, s in terms.items() if s > 0), key=lambda item: -item[1])
    if len(ordered) <= keep + 1:
        return ordered
    return [*ordered[:keep], ("other", sum(size for _, size in ordered[keep:]))]


def stacked_bar(sizes: Sequence[float], *, full: float, width: int) -> list[tuple[str, str]]:
    """Segments ``(characters, colour)`` whose lengths are proportional to ``sizes`` on a scale of ``full``.

    Every segment has its own character as well as its own colour, so that the bar can be read without colour.
    """
    segments: list[tuple[str, str]] = []
    drawn, total = 0, 0.0
    for i, size in enumerate(sizes):
        total += size
        end = min(width, round(width * total / full)) if full > 0 else 0
        segments.append((_BLOCKS[i % len(_BLOCKS)] * (end - drawn), COLOURS[i % len(COLOURS)]))
        drawn = max(drawn, end)
    return segments
