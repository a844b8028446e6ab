"""A replay of the caching allocator as a document, as text, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomdoc.report.estimates import gib
from oomdoc.report.words import word
from oomkb.units import GIB

if TYPE_CHECKING:
    from oomkb.memory.allocator.run import AllocatorRun

_POINTS: Final = 4000
"""Points of a curve at most."""


def allocator_document(run: AllocatorRun) -> dict[str, Any]:
    """The ``allocator`` part of an estimate's document; sizes in GiB."""
    shown = run.shown
    refused = shown.refused
    return {
        "steps": run.steps,
        "events": len(run.free.timeline),
        "capacity_gib": None if run.capacity is None else gib(run.capacity),
        "reserved_gib": gib(shown.reserved),
        "allocated_gib": gib(shown.allocated),
        "largest_free_gib": gib(shown.largest_free),
        "free_cached_gib": gib(shown.free_cached),
        "fragmentation": round(shown.fragmentation, 4),
        "retries": shown.retries,
        "unlimited_reserved_gib": gib(run.free.reserved),
        "changing_lengths": run.changing,
        "refused": None
        if refused is None
        else {
            "name": refused.name,
            "where": refused.where,
            "size_gib": gib(refused.size),
            "free_gib": gib(refused.free),
            "largest_free_gib": gib(refused.largest_free),
            "fragmented": refused.fragmented,
        },
        "expandable": None
        if run.joined is None
        else {"reserved_gib": gib(run.joined.reserved), "fits": run.joined.refused is None},
    }


def allocator_text(document: dict[str, Any], language: str) -> str:
    """The lines that ``oomdoc estimate --allocator`` prints below the estimate."""
    d = document
    lines = [
        word("allocator.reserved", language, percent=_percent(d), **_both(d, "reserved", "allocated")),
        word("allocator.largest", language, largest=_two(d["largest_free_gib"]), free=_two(d["free_cached_gib"])),
    ]
    if d["retries"]:
        lines.append(word("allocator.retries", language, count=d["retries"]))
    if d["unlimited_reserved_gib"] > d["reserved_gib"]:
        lines.append(word("allocator.unlimited", language, reserved=_two(d["unlimited_reserved_gib"])))
    if d["changing_lengths"]:
        lines.append(word("allocator.changing", language))
    refused = d["refused"]
    if refused:
        sizes = {**_both(refused, "size", "free"), "largest": _two(refused["largest_free_gib"])}
        lines.append(word("allocator.refused", language, name=refused["name"], where=refused["where"], **sizes))
        if refused["fragmented"]:
            lines.append(word("allocator.fragmented", language))
    if d["expandable"]:
        key = "allocator.joined" if d["expandable"]["fits"] else "allocator.joined-fails"
        lines.append(word(key, language, reserved=_two(d["expandable"]["reserved_gib"])))
    head = word("allocator.head", language, steps=d["steps"], events=f"{d['events']:,}")
    return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"


def _both(document: dict[str, Any], *names: str) -> dict[str, str]:
    return {name: _two(document[f"{name}_gib"]) for name in names}


def _two(size: float) -> str:
    return f"{size:.2f}"


def _percent(document: dict[str, Any]) -> str:
    return f"{100 * document['fragmentation']:.0f}"


def draw_timeline(run: AllocatorRun, path: Path) -> bool:
    """Allocated and reserved over the events, with the steps marked; false where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    shown = run.shown
    points = shown.timeline
    stride = max(1, len(points) // _POINTS)
    chunks = [points[i : i + stride] for i in range(0, len(points), stride)]
    at = [chunk[0].event for chunk in chunks]
    # Letters that the fonts of a bare machine lack would be boxes: a picture is labelled in English.
    figure = Figure(figsize=(10, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(
        at, [max(p.reserved for p in c) / GIB for c in chunks], alpha=0.35, label=word("allocator.line-reserved", "en")
    )
    axes.fill_between(
        at, [max(p.allocated for p in c) / GIB for c in chunks], alpha=0.8, label=word("allocator.line-allocated", "en")
    )
    for event, name in shown.marks:
        axes.axvline(event, color="grey", linewidth=0.6)
        axes.annotate(name, (event, 0.99), xycoords=("data", "axes fraction"), va="top", fontsize=7, rotation=90)
    if run.capacity is not None:
        label = word("allocator.line-card", "en")
        axes.axhline(run.capacity / GIB, color="black", linestyle="--", linewidth=1, label=label)
    axes.set_xlabel(word("allocator.axis-events", "en"))
    axes.set_ylabel(word("allocator.axis", "en"))
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path)
    return True
