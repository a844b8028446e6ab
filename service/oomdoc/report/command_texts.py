"""Texts of single commands: a traced step beside the estimate, what spoke for a cause, the summary of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from oomdoc.evidence import Message
from oomdoc.report.terminal import new_console, print_heading, text_of
from oomdoc.report.words import render, word, word_or

_SHOWN_GIB = 0.005


def trace_text(
    document: dict[str, Any], notes: Sequence[Message], language: str, *, width: int = 100, colour: bool = False
) -> str:
    """The text of ``oomdoc trace``: a table, the analytic terms by phase, what was set aside, whether it agrees."""
    console = new_console(width, colour)
    model = document["job"]["model"]
    console.print(Text(word("trace.head", language, model=str(model.get("model_type", "?"))), style="bold"))
    console.print(_table(document["rows"], language))
    for phase, terms in document["terms"].items():
        shown = sorted(((n, s) for n, s in terms.items() if s >= _SHOWN_GIB), key=lambda item: -item[1])
        detail = "  ".join(f"{word_or(f'term.{name}', name, language)} {size:.2f}" for name, size in shown)
        console.print(Text(f"  {word(f'phase.{phase}', language):<15} {detail}", style="dim"))
    figures = {name: f"{count:,}" for name, count in document["params"].items()}
    console.print(Text("  " + word("trace.params", language, **figures), style="dim"))
    for note in notes:
        console.print(Text("  • " + render(note, language)))
    percent = f"{100 * document['tolerance']:.0f}"
    key = "trace.agrees" if document["agrees"] else "trace.differs"
    console.print()
    console.print(Text(word(key, language, percent=percent), style="bold"))
    return text_of(console)


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


_BAR: Final = 30
_MAX_GROUPS: Final = 10


def fleet_text(document: dict[str, Any], language: str, *, width: int = 100, colour: bool = False) -> str:
    """The text of ``oomdoc batch``."""
    console = new_console(width, colour)
    head = {k: document[k] for k in ("logs", "failures", "unreadable")}
    console.print(Text(word("fleet.head", language, wasted=f"{document['wasted_gib']:,.0f}", **head), style="bold"))
    for key in ("by-cause", "by-framework", "by-team"):
        counts: dict[str, int] = document[key.replace("-", "_")]
        if counts:
            print_heading(console, f"fleet.{key}", language)
            most = max(counts.values())
            for name, count in counts.items():
                console.print(Text(f"  {name:<22}{'█' * max(1, round(_BAR * count / most)):<{_BAR}} {count:>6}"))
    if document["groups"]:
        print_heading(console, "fleet.groups", language)
    for group in document["groups"][:_MAX_GROUPS]:
        values = {k: group[k] or "" for k in ("count", "cause", "framework", "model")}
        wasted = f"{group['wasted_gib']:,.0f}"
        console.print(Text("  " + word("fleet.group", language, wasted=wasted, **values), style="bold"))
        console.print(Text("      " + word("fleet.example", language, log=group["example"]), style="dim"))
        if group["fix"]:
            console.print(Text("      " + word("fleet.fix", language, fix=group["fix"])))
    return text_of(console)
