"""What spoke for and against the first causes, in log-odds, with lines: ``oomdoc diagnose --explain``."""

from __future__ import annotations

from typing import Any, Final

from rich.table import Table
from rich.text import Text

from oomdoc.report.terminal import new_console, text_of
from oomdoc.report.words import word

_MAX_CAUSES: Final = 3
_MAX_ROWS: Final = 12


def explanation_text(document: dict[str, Any], language: str, *, width: int = 100, colour: bool = False) -> str:
    """A table for each of the first three causes: feature, log-odds against the average cause, place."""
    console = new_console(width, colour)
    for cause in document["causes"][:_MAX_CAUSES]:
        console.print()
        console.print(Text(f"{cause['probability']:>4.0%}  {cause['cause']}", style="bold"))
        table = Table(box=None, show_header=True, pad_edge=False, header_style="dim")
        table.add_column(word("report.explain-log-odds", language), justify="right")
        table.add_column(word("report.explain-feature", language), no_wrap=True, overflow="ellipsis")
        table.add_column(word("report.explain-place", language), overflow="fold")
        for one in cause["contributions"][:_MAX_ROWS]:
            place = f"{one['source']}:{one['line']}" if one["line"] else ""
            style = "green" if one["log_odds"] > 0 else "red"
            table.add_row(Text(f"{one['log_odds']:+.2f}", style=style), Text(one["feature"]), Text(place, style="dim"))
        console.print(table)
    return text_of(console)
