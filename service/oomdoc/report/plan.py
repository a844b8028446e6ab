"""The table before a run, as JSON and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid
from rich.text import Text

from oomdoc.report import terminal
from oomdoc.report.document import plan_document
from oomdoc.report.estimates import estimate_document
from oomdoc.report.words import inner, render, word
from oomkb.units import GIB

if TYPE_CHECKING:
    from oomdoc.diagnosis.planning import Table

__all__ = ["plan_text", "table_document"]

_MOST_KNOBS = 24


def table_document(table: Table, language: str) -> dict[str, Any]:
    """The document of ``oomdoc plan`` without its job."""
    planning = table.planning
    return {
        "estimate": estimate_document(table.estimate, language=language),
        "fits": table.fits,
        "fits_probability": None if table.fits_probability is None else round(table.fits_probability, 4),
        "largest": dict(planning.largest),
        "plans": [plan_document(p, language) for p in planning.plans],
        "knobs": [
            {
                "remedy": knob.remedy,
                "key": knob.key,
                "from": knob.old,
                "to": knob.new,
                "saves_gib": round(knob.saves_bytes / GIB, 2),
                "peak_gib": round(knob.peak_bytes / GIB, 2),
                "fits_probability": round(knob.fits_probability, 3),
                "relative_speed": round(knob.relative_speed, 3),
                "safety": knob.safety,
                "instruction": render(knob.instruction, language) if knob.instruction else None,
                "fields": dict(knob.fields),
            }
            for knob in table.knobs
        ],
        "nothing_fits": render(planning.nothing_fits, language) if planning.nothing_fits else None,
        "notes": [render(note, language) for note in planning.notes],
    }


def plan_text(document: dict[str, Any], language: str, *, width: int = 100, colour: bool = False) -> str:
    """The text of ``oomdoc plan``."""
    console = terminal.new_console(width, colour)
    for warning in document.get("warnings") or ():
        console.print(Text("  ! " + warning, style="yellow"))
    terminal.print_estimate(console, document["estimate"], language)
    if document["largest"]:
        shown = ", ".join(f"{name} {size:,}" for name, size in document["largest"].items())
        console.print(Text("  " + word("report.largest", language, largest=shown), style="bold"))
    if document["nothing_fits"]:
        console.print(Text("  " + document["nothing_fits"], style="bold red"))
    if document["knobs"]:
        terminal.print_heading(console, "report.knobs", language)
        console.print(_grid(document["knobs"][:_MOST_KNOBS], language))
    terminal.print_plans(console, document, language)
    terminal.print_assumed(console, document["estimate"].get("assumed") or {}, language)
    return terminal.text_of(console)


def _grid(knobs: list[dict[str, Any]], language: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("  " + word("report.knob", language))
    for key in ("report.knob-saves", "report.knob-peak", "report.knob-fits", "report.knob-speed"):
        grid.add_column(word(key, language), justify="right")
    grid.add_column(word("report.knob-safety", language))
    for knob in knobs:
        chance = knob["fits_probability"]
        grid.add_row(
            "  " + inner(knob["instruction"] or f"{knob['key']} → {terminal.show_value(knob['to'])}"),
            f"{knob['saves_gib']:.2f}",
            f"{knob['peak_gib']:.2f}",
            Text(f"{chance:.0%}", style="green" if chance >= 0.9 else "red"),
            f"×{knob['relative_speed']:.2f}",
            word(f"safety.{knob['safety']}", language),
        )
    return grid
