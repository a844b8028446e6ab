"""The table before a run, as JSON and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from oomdoc.report import terminal
from oomdoc.report.document import change_document, plan_document
from oomdoc.report.estimates import change_sentence, estimate_document, plan_sentence, show_value
from oomdoc.report.words import inner, render, word
from oomkb.units import GIB

if TYPE_CHECKING:
    from oomdoc.diagnosis.planning.prices import Table

_MAX_KNOBS = 24
_FEW_KNOBS = 6
_TELLING_GIB = 0.3


def table_document(table: Table, language: str) -> dict[str, Any]:
    """The document of ``oomdoc plan`` without its job."""
    planning = table.planning
    return {
        "estimate": estimate_document(table.estimate, language=language),
        "fits": table.fits,
        "fits_probability": None if table.fits_probability is None else round(table.fits_probability, 4),
        "largest": {name: size for name, size in planning.largest.items() if size},
        "plans": [plan_document(p, language) for p in planning.plans],
        "knobs": [
            {
                **change_document(knob.change, language),
                "peak_gib": round(knob.peak_bytes / GIB, 2),
                "needed_gib": round(knob.needed_bytes / GIB, 2),
                "fits_probability": round(knob.fits_probability, 3),
                "relative_speed": round(knob.relative_speed, 3),
                "safety": knob.safety,
            }
            for knob in table.knobs
        ],
        "nothing_fits": render(planning.nothing_fits, language) if planning.nothing_fits else None,
        "notes": [render(note, language) for note in planning.notes],
    }


def plan_text(
    document: dict[str, Any], language: str, *, width: int = 100, colour: bool = False, full: bool = False
) -> str:
    """The text of ``oomdoc plan``: the answer, what would fit, the knobs that help most; with ``full`` all of it."""
    console = terminal.new_console(width, colour)
    for number, sentence in enumerate(document["sentences"]):
        console.print(Text(sentence, style="" if number else "bold"))
    if document["nothing_fits"]:
        console.print(Text(document["nothing_fits"], style="bold red"))
    for warning in document.get("warnings") or ():
        console.print(Text("  ! " + warning, style="yellow"))
    if not full:
        _short(console, document, language)
        console.print()
        console.print(Text(word("report.plan-more", language), style="dim"))
        return terminal.text_of(console)
    console.print()
    terminal.print_estimate(console, document["estimate"], language)
    if document["largest"]:
        shown = ", ".join(f"{name} {size:,}" for name, size in document["largest"].items())
        console.print(Text("  " + word("report.largest", language, largest=shown), style="bold"))
    if document["knobs"]:
        terminal.print_heading(console, "report.knobs", language)
        console.print(_grid(document["knobs"][:_MAX_KNOBS], language))
    terminal.print_plans(console, document, language)
    terminal.print_assumed(console, document["estimate"].get("assumed") or {}, language)
    return terminal.text_of(console)


def _short(console: Console, document: dict[str, Any], language: str) -> None:
    """The first plans in a line each, or the knobs that save most where it fits already."""
    if document["plans"]:
        terminal.print_heading(console, "report.plans", language)
        for number, plan in enumerate(document["plans"], 1):
            changes = "; ".join(inner(change_sentence(change, language)) for change in plan["changes"])
            console.print(Text(f"  {number}  {changes}", style="bold"))
            console.print(Text(f"     {plan_sentence(plan, language)}"))
        return
    once = {k["remedy"]: k for k in reversed(document["knobs"]) if k["saves_gib"] >= _TELLING_GIB}
    likeliest = sorted(once.values(), key=lambda k: -k["saves_gib"])[:_FEW_KNOBS]
    if likeliest:
        terminal.print_heading(console, "report.knobs", language)
        console.print(_grid(likeliest, language))


def _grid(knobs: list[dict[str, Any]], language: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("  " + word("report.knob", language))
    for key in ("report.knob-saves", "report.knob-peak", "report.knob-fits", "report.knob-speed"):
        grid.add_column(word(key, language), justify="right")
    grid.add_column(word("report.knob-safety", language))
    for knob in knobs:
        chance = knob["fits_probability"]
        grid.add_row(
            "  " + inner(knob["instruction"] or f"{knob['key']} → {show_value(knob['to'])}"),
            f"{knob['saves_gib']:.2f}",
            f"{knob['peak_gib']:.2f}",
            Text(f"{chance:.0%}", style="green" if chance >= 0.9 else "red"),
            f"×{knob['relative_speed']:.2f}",
            word(f"safety.{knob['safety']}", language),
        )
    return grid
