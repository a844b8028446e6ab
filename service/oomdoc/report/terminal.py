"""Documents as text for a terminal, with rich; plain where colour is not wanted (NO_COLOR, a pipe).

A notebook shows the same text in the same colours: HTML without script or link, every value escaped.
"""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from oomdoc.evidence import shortened_to
from oomdoc.report.case_page import SHOWN_FIXES
from oomdoc.report.chart import largest_terms, stacked_bar
from oomdoc.report.estimates import change_sentence, fits_sentence, likely, plan_sentence, show_value
from oomdoc.report.screen import Screen, first_screen
from oomdoc.report.words import inner, word, word_or

_BAR_WIDTH: Final = 40
_MAX_LINES: Final = 20
_NOTEBOOK_WIDTH: Final = 110
_HTML: Final = '<div><pre style="line-height:1.3;background:none;color:inherit">{code}</pre></div>'


def estimate_text(document: dict[str, Any], language: str, *, width: int = 100, colour: bool = False) -> str:
    """The text of ``oomdoc estimate``: a bar per phase, the peak, its interval, what was assumed."""
    console = new_console(width, colour)
    _estimate(console, document, language)
    return text_of(console)


def estimate_html(document: dict[str, Any], language: str) -> str:
    """An estimate for a notebook."""
    console = new_console(_NOTEBOOK_WIDTH, True, record=True)
    _estimate(console, document, language)
    return console.export_html(code_format=_HTML, inline_styles=True)


def _estimate(console: Console, document: dict[str, Any], language: str) -> None:
    print_estimate(console, document, language)
    print_assumed(console, document.get("assumed") or {}, language)
    _list(console, "report.warnings", document.get("warnings") or [], language)


def diagnosis_text(
    document: dict[str, Any], language: str, *, width: int = 100, colour: bool = False, full: bool = False
) -> str:
    """The text of ``oomdoc diagnose``: the first screen, with ``full`` everything else after it."""
    screen = first_screen(document, language)
    if not full:
        # What stands in the full text as well goes first where the lines are too many.
        named = tuple(word("topic.named", language, **topic) for topic in document.get("topics", []) if screen.read)
        short = replace(screen, quotes=(), read=named)
        shorter = (screen, short, replace(short, why=screen.why[:2]))
        if screen.further:
            leads = tuple(answered.partition("\n")[0] for answered in screen.further)
            shorter = (screen, short, replace(short, answer=screen.answer[:2], further=leads))
        texts = (_first_text(one, language, width, colour) for one in (*shorter, replace(shorter[-1], ask="")))
        text = ""
        for text in texts:
            if len(text.strip().splitlines()) <= _MAX_LINES:
                break
        return text
    console = new_console(width, colour)
    _everything(console, document, language)
    return text_of(console)


def diagnosis_html(document: dict[str, Any], language: str) -> str:
    """A diagnosis for a notebook: all of it."""
    console = new_console(_NOTEBOOK_WIDTH, True, record=True)
    _everything(console, document, language)
    return console.export_html(code_format=_HTML, inline_styles=True)


def _everything(console: Console, document: dict[str, Any], language: str) -> None:
    _screen(console, first_screen(document, language), language)
    _causes(console, document, language)
    _tensors(console, document, language)
    _inactive(console, document, language)
    if document.get("estimate"):
        print_heading(console, "report.memory", language)
        print_estimate(console, document["estimate"], language)
        print_assumed(console, document["estimate"].get("assumed") or {}, language)
    _inferred(console, document, language)
    print_plans(console, document, language)
    _matches(console, document, language)
    _threads(console, document, language)
    _read_more(console, document, language)
    _questions(console, document, language)
    _conflicts(console, document, language)
    _list(console, "report.warnings", document.get("warnings") or [], language)


def _first_text(screen: Screen, language: str, width: int, colour: bool) -> str:
    console = new_console(width, colour)
    _screen(console, screen, language)
    console.print()
    console.print(Text(screen.more or word("screen.more", language), style="dim"))
    return text_of(console)


def _screen(console: Console, screen: Screen, language: str) -> None:
    """The parts in their order, each line cut to the width."""
    style = "bold" if screen.answer else "bold red"
    if screen.headline:
        console.print(Text(screen.headline, style=style))
    for number, sentence in enumerate(screen.answer):
        console.print(Text(sentence, style="" if number or screen.headline else "bold"))
    if screen.grid:
        console.print()
        for number, line in enumerate(screen.grid):
            console.print(Text(f"  {line}" if number else line, style="" if number else "bold"), no_wrap=True)
    for key, lines in (("screen.why", screen.why), ("screen.do", screen.do)):
        if lines:
            console.print()
        for number, line in enumerate(lines):
            head = word(key, language) if number == 0 else ""
            most = _MAX_CELLS_TO_DO if key == "screen.do" else _MAX_CELLS
            console.print(_labelled(head, _cut(line, most), bold=number == 0 or key == "screen.do"))
        if key == "screen.why":
            for quote in screen.quotes:
                console.print(_labelled("", _cut(quote)))
    if screen.sure:
        console.print()
        console.print(_labelled(word("screen.how-sure", language), screen.sure))
    for line in (*screen.further, *screen.read):
        console.print()
        console.print(Text(line))
    if screen.ask:
        console.print()
        console.print(Text(screen.ask))


_LABEL = 10
_PHASE_CELLS = 15
_MAX_CELLS = 176
_MAX_CELLS_TO_DO = 352
"""What is to be typed is of no use where its end is missing."""


def _labelled(head: str, line: str, *, bold: bool = False) -> Table:
    """A line under its part's label, wrapped beside it."""
    grid = Table.grid(padding=0)
    grid.add_column(width=_LABEL)
    grid.add_column(overflow="fold")
    grid.add_row(Text(head, style="bold"), Text(line, style="bold" if bold and head else ""))
    return grid


def _cut(line: str, most: int = _MAX_CELLS) -> str:
    length = len(line)
    while cell_len(line[:length]) > most:
        length -= 8
    return shortened_to(line, length)


def _read_more(console: Console, document: dict[str, Any], language: str) -> None:
    """Topics that a failure's words touch; those of a question are its answer."""
    failed = document["verdict"] != "no-failure"
    items = [word("topic.named", language, **topic) for topic in document.get("topics", []) if failed]
    _list(console, "report.topics", items, language)


def _inferred(console: Console, document: dict[str, Any], language: str) -> None:
    items = [
        f"{name} = {show_value(i['value'])} ({i['probability']:.0%}): {i['why']}"
        for name, i in (document.get("inferred") or {}).items()
    ]
    _list(console, "report.inferred", items, language)


def new_console(width: int, colour: bool, *, record: bool = False) -> Console:
    """A console that writes into a string."""
    return Console(
        file=StringIO(), width=width, force_terminal=colour, no_color=not colour, highlight=False, record=record
    )


def text_of(console: Console) -> str:
    """What was printed."""
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


def print_heading(console: Console, key: str, language: str) -> None:
    """A heading with an empty line before it."""
    console.print()
    console.print(Text(word(key, language), style="bold underline"))


def _causes(console: Console, document: dict[str, Any], language: str) -> None:
    shown = [c for c in document["causes"][:3] if c["probability"] >= 0.02]
    if not shown:
        return
    print_heading(console, "report.causes", language)
    for cause in shown:
        console.print(Text(f"{cause['probability']:>5.0%}  {cause['cause']}", style="bold"))
        for why in cause["why"][:4]:
            console.print(Text(f"       • {why}"))
        places = [f"{e['source']}:{e['line']}" for e in cause["evidence"][:4]]
        if places:
            console.print(Text(f"       {'  '.join(places)}", style="dim"))


def _tensors(console: Console, document: dict[str, Any], language: str) -> None:
    tensors = ((document.get("failure") or {}).get("tensors")) or []
    if not tensors:
        return
    print_heading(console, "report.tensors", language)
    for tensor in tensors[:3]:
        shape = "×".join(f"{n:,}" for n in tensor["shape"])
        line = word(
            "report.tensor-line",
            language,
            name=tensor["name"],
            shape=f"[{shape}]",
            dtype=tensor["dtype"],
            gib=f"{tensor['gib']:.2f}",
        )
        console.print(Text(f"  {line}  ({tensor['match']:.0%})"))


def _inactive(console: Console, document: dict[str, Any], language: str) -> None:
    items = []
    for item in document.get("inactive") or []:
        items.append(f"{item['message']}  ({item['source']}:{item['line']})")
    _list(console, "report.inactive", items, language)


def print_estimate(console: Console, document: dict[str, Any], language: str) -> None:
    """A bar per phase, the peak, whether it fits."""
    peak, interval = document["peak_gib"], document["interval_gib"].get("process") or [0.0, 0.0]
    phases = {n: p for n, p in document["phases"].items() if p and p.get("terms")}
    capacity = document.get("capacity_gib")
    full = max([capacity or 0.0, *(p["total_gib"] for p in phases.values())], default=1.0) or 1.0
    for name, phase in phases.items():
        terms = largest_terms(phase["terms"])
        label = word(f"phase.{name}", language)
        line = Text(f"  {label}{' ' * max(1, _PHASE_CELLS - cell_len(label))}")
        used = 0
        for characters, colour in stacked_bar([s for _, s in terms], full=full, width=_BAR_WIDTH):
            line.append(characters, style=colour)
            used += len(characters)
        line.append(" " * (_BAR_WIDTH - used))
        line.append(f" {phase['total_gib']:>7.2f} GiB", style="bold" if name == document["peak_phase"] else "")
        console.print(line)
        detail = "  ".join(f"{word_or(f'term.{t}', t, language)} {size:.2f}" for t, size in terms if size >= 0.005)
        console.print(Text(f"  {'':<15}{detail}", style="dim"))
    console.print(
        Text(
            "  "
            + word(
                "report.peak-line",
                language,
                needed=f"{document.get('needed_gib') or peak['process']:.2f}",
                peak=f"{peak['process']:.2f}",
                allocated=f"{peak['allocated']:.2f}",
                reserved=f"{peak['reserved']:.2f}",
                phase=word(f"phase.{document['peak_phase']}", language),
                low=f"{interval[0]:.2f}",
                high=f"{interval[1]:.2f}",
            )
        )
    )
    console.print(Text("  " + _fits_line(document, language), style="bold"))
    if document.get("host_gib", 0) >= 1:
        console.print(Text("  " + word("report.host", language, gib=f"{document['host_gib']:.0f}")))
    console.print(
        Text(
            "  "
            + word("report.params", language, params=f"{document['params']:,}", trainable=f"{document['trainable']:,}"),
            style="dim",
        )
    )


def _fits_line(document: dict[str, Any], language: str) -> str:
    known = document.get("fits") is not None
    return fits_sentence(document, language) if known else word("report.fits-unknown", language)


_PLAIN: Final[tuple[Any, ...]] = (1, "none", "ddp", [], ())
"""Assumed values that change nothing: one of each, and nothing split, quantised or offloaded."""


def print_assumed(console: Console, assumed: dict[str, Any], language: str) -> None:
    """One paragraph: the reasons are in the JSON, and a list of thirty lines would bury the answer."""
    if assumed:
        assumed_values = {name: item["value"] for name, item in assumed.items() if item["value"] not in _PLAIN}
        values = ", ".join(f"{name} {show_value(value)}" for name, value in assumed_values.items())
        console.print(Text(f"  {word('report.assumed', language)}: {values}", style="dim"))


def print_plans(console: Console, document: dict[str, Any], language: str) -> None:
    """The plans with their patches, then what single fixes would do."""
    if document["plans"]:
        print_heading(console, "report.plans", language)
    for number, plan in enumerate(document["plans"], 1):
        title = word_or(f"plan.{plan['name']}", plan["name"], language)
        console.print(Text(f"  {number}  {title}", style="bold"))
        console.print(Text(f"     {plan_sentence(plan, language)}"))
        for change in plan["changes"]:
            console.print(Text(f"     • {_change_line(change, language)}"))
        for note in plan["notes"]:
            console.print(Text(f"       {note}", style="dim"))
        for line in plan["patch"].splitlines():
            style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
            console.print(Text(f"       {line}", style=style), soft_wrap=True)
    singles = document.get("single_fixes") or []
    if singles:
        print_heading(console, "report.alone", language)
        for single in singles:
            verdicts = {True: "report.alone-fits", False: "report.alone-short", None: "report.alone-peak"}
            key = verdicts[single["fits"]]
            change = single["instruction"] or f"{single['key']} → {show_value(single['to'])}"
            chance = "" if single["fits_probability"] is None else f" ({likely(single['fits_probability'])})"
            line = word(key, language, change=inner(change), peak=f"{single['peak_gib']:.2f}") + chance
            console.print(Text(f"  • {line}"))


def _change_line(change: dict[str, Any], language: str) -> str:
    parts = [change_sentence(change, language)]
    if change["saves_gib"] >= 0.01:
        parts.append(f"({word('report.saves', language, gib=format(change['saves_gib'], '.2f'))})")
    return "  ".join(parts)


def _matches(console: Console, document: dict[str, Any], language: str) -> None:
    if not document["matches"]:
        return
    print_heading(console, "report.matches", language)
    for match in document["matches"][:3]:
        console.print(Text(f"  {match['score']:.2f}  {match['title']}", style="bold"))
        why = "; ".join(match["why"][:2])
        console.print(
            Text(f"        {match['case']}  {match['url']}" + (f"\n        {why}" if why else ""), style="dim")
        )
        for fix in match.get("fixes", [])[:SHOWN_FIXES]:
            console.print(Text(f"        • {fix['text']} ({fix['standing']})"))


def _threads(console: Console, document: dict[str, Any], language: str) -> None:
    items = [f"{t['url']}  ({t['cause']}, {t['likeness']:.0%})" for t in document.get("threads") or []]
    _list(console, "report.threads", items, language)


def _questions(console: Console, document: dict[str, Any], language: str) -> None:
    items = [
        f"{q['fact']}: {q['why']}" + (f"\n    → {q['how']}" if q.get("how") else "")
        for q in document.get("questions") or []
    ]
    _list(console, "report.questions", items, language)


def _conflicts(console: Console, document: dict[str, Any], language: str) -> None:
    items = []
    for c in document.get("conflicts") or []:
        if c.get("observed"):
            items.append(c["why"])
            continue
        kept, dropped = (f"{f['value']} ({f['source']}:{f['line']})" for f in (c["kept"], c["dropped"]))
        items.append(word("report.conflict-line", language, fact=c["fact"], kept=kept, dropped=dropped))
    _list(console, "report.conflicts", items, language)


def _list(console: Console, key: str, items: list[str], language: str) -> None:
    if not items:
        return
    print_heading(console, key, language)
    for item in items:
        console.print(Text(f"  • {item}"))
