"""Stacked bars of an estimate: in characters, and as a chart with a bar per phase and a colour per term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from oomkb.errors import InputError

_FORMATS: Final = (".svg", ".png", ".pdf")


def write_chart(document: dict[str, Any], path: Path, *, title: str = "") -> None:
    """Draw an estimate document (``oomdoc estimate``) into ``path``.

    :raises InputError: for an ending that is not a picture, or where matplotlib is not installed.
    """
    if path.suffix.lower() not in _FORMATS:
        raise InputError("not a picture's ending", where=str(path), hint=f"end the name in {', '.join(_FORMATS)}")
    chart(document, title=title).savefig(path)


def chart(document: dict[str, Any], *, title: str = "") -> Any:
    """The chart of an estimate document as a matplotlib figure.

    :raises InputError: where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("matplotlib is not installed", where="--chart", hint="pip install 'oomdoc[chart]'") from error
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    _draw(figure.subplots(), document, title)
    return figure


def _draw(axes: Any, document: dict[str, Any], title: str) -> None:
    phases = {n: p for n, p in document["phases"].items() if p and p.get("terms")}
    largest: dict[str, float] = {}
    for phase in phases.values():
        for term, size in phase["terms"].items():
            largest[term] = max(largest.get(term, 0.0), size)
    shown = [term for term, _ in largest_terms(largest, keep=9) if term != "other"]
    bottoms = [0.0] * len(phases)
    for term in [*shown, "other"]:
        sizes = [_size(phase["terms"], term, shown) for phase in phases.values()]
        if not any(sizes):
            continue
        axes.bar(list(phases), sizes, bottom=bottoms, label=term, width=0.6)
        bottoms = [b + s for b, s in zip(bottoms, sizes, strict=True)]
    capacity = document.get("capacity_gib")
    if capacity:
        axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
        axes.annotate(f"{capacity:.2f} GiB", (len(phases) - 0.5, capacity), va="bottom", ha="right")
    axes.set_ylabel("GiB per GPU (tensors)")
    axes.set_title(title or f"peak {document['peak_gib']['process']:.2f} GiB in {document['peak_phase']}")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def _size(terms: dict[str, float], term: str, shown: list[str]) -> float:
    if term == "other":
        return sum(size for name, size in terms.items() if name not in shown)
    return terms.get(term, 0.0)


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
