"""A traced step beside the estimate, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from oomdoc.messages import Message
from oomdoc.report import terminal
from oomdoc.report.words import has, render, word

_SHOWN_GIB = 0.005


def trace_text(
    document: dict[str, Any], notes: Sequence[Message], language: str, *, width: int = 100, colour: bool = False
) -> str:
    """The text of ``oomdoc trace``: a table, the analytic terms by phase, what was set aside, whether it agrees."""
    console = terminal.new_console(width, colour)
    model = document["job"]["model"]
    console.print(Text(word("trace.head", language, model=str(model.get("model_type", "?"))), style="bold"))
    console.print(_table(document["rows"], language))
    for phase, terms in document["terms"].items():
        shown = sorted(((n, s) for n, s in terms.items() if s >= _SHOWN_GIB), key=lambda item: -item[1])
        detail = "  ".join(f"{_term(name, language)} {size:.2f}" for name, size in shown)
        console.print(Text(f"  {word(f'phase.{phase}', language):<15} {detail}", style="dim"))
    figures = {name: f"{count:,}" for name, count in document["params"].items()}
    console.print(Text("  " + word("trace.params", language, **figures), style="dim"))
    for note in notes:
        console.print(Text("  • " + render(note, language)))
    percent = f"{100 * document['tolerance']:.0f}"
    key = "trace.agrees" if document["agrees"] else "trace.differs"
    console.print()
    console.print(Text(word(key, language, percent=percent), style="bold"))
    if document["issue"]:
        console.print()
        console.print(Text(document["issue"]), soft_wrap=True)
    return terminal.text_of(console)


def _term(name: str, language: str) -> str:
    key = f"term.{name}"
    return word(key, language) if has(key) else name


def _table(rows: list[dict[str, Any]], language: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(word("trace.column-what", language))
    for name in ("estimated", "traced", "difference"):
        table.add_column(word(f"trace.column-{name}", language), justify="right")
    for row in rows:
        figures = [f"{row['estimated_gib']:.3f}", f"{row['traced_gib']:.3f}", f"{row['difference']:+.2%}"]
        style = "" if row["agrees"] else "bold red"
        table.add_row(word(f"trace.row-{row['name']}", language), *figures, style=style)
    return table
