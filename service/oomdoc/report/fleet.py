"""A fleet's summary as text: counts as bars, the commonest failures with their fix."""

from __future__ import annotations

from typing import Any, Final

from rich.text import Text

from oomdoc.report import terminal
from oomdoc.report.words import word

_BAR: Final = 30
_MAX_GROUPS: Final = 10


def fleet_text(document: dict[str, Any], language: str, *, width: int = 100, colour: bool = False) -> str:
    """The text of ``oomdoc batch``."""
    console = terminal.new_console(width, colour)
    head = {k: document[k] for k in ("logs", "failures", "unreadable")}
    console.print(Text(word("fleet.head", language, wasted=f"{document['wasted_gib']:,.0f}", **head), style="bold"))
    for key in ("by-cause", "by-framework", "by-team"):
        counts: dict[str, int] = document[key.replace("-", "_")]
        if counts:
            terminal.print_heading(console, f"fleet.{key}", language)
            most = max(counts.values())
            for name, count in counts.items():
                console.print(Text(f"  {name:<22}{'█' * max(1, round(_BAR * count / most)):<{_BAR}} {count:>6}"))
    if document["groups"]:
        terminal.print_heading(console, "fleet.groups", language)
    for group in document["groups"][:_MAX_GROUPS]:
        values = {k: group[k] or "" for k in ("count", "cause", "framework", "model")}
        wasted = f"{group['wasted_gib']:,.0f}"
        console.print(Text("  " + word("fleet.group", language, wasted=wasted, **values), style="bold"))
        console.print(Text("      " + word("fleet.example", language, log=group["example"]), style="dim"))
        if group["fix"]:
            console.print(Text("      " + word("fleet.fix", language, fix=group["fix"])))
    return terminal.text_of(console)
