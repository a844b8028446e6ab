"""Facts from what stands in the lines: prose, and settings that no config table reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Kind, Line, distinct
from oomdoc.intake.patterns import patterns
from oomdoc.intake.prose.hardware import read_hardware, shows_several
from oomdoc.intake.prose.models import read_called, read_models
from oomdoc.intake.prose.settings import read_settings
from oomdoc.intake.prose.words import read_objective, read_traces, read_words
from oomdoc.intake.quantities.facts import by_role
from oomdoc.intake.sieve import Vocabulary, found_in
from oomkb.catalog import gpus
from oomkb.units import to_gib

_RE: Final = patterns(__file__)


def text_facts(lines: Sequence[Line], kinds: Sequence[Kind], varied: list[Line], words: Vocabulary) -> list[Fact]:
    """Every fact that the lines state in passing, surest kinds of lines first.

    :param varied: the lines without repetitions.
    :param words: the vocabulary of all of them.
    """
    said = distinct([line for line, kind in zip(lines, kinds, strict=True) if kind == "prose"])
    facts = by_role(list(_facts(lines, kinds, varied, words)), said)
    if _serves(facts):
        facts += [
            replace(f, name="max_model_len")
            for f in facts
            if f.name == "seq_len" and _RE["context"].search(f.span.text)
        ]
    if any(f.name == "quant" and f.value == "nf4" for f in facts):
        adapters = [f for f in facts if (f.name, f.value) == ("method", "lora")]
        facts += [replace(f, value="qlora", confidence=min(1.0, f.confidence + 0.02)) for f in adapters]
    return _of_each_card(_with_nodes(facts, lines, varied, words))


def _of_each_card(facts: list[Fact]) -> list[Fact]:
    """The facts without a capacity that all cards have together: ``4 x A10, 96 GB``."""
    best = {
        name: max((f for f in facts if f.name == name), key=lambda f: f.confidence, default=None) for name in _CARDS
    }
    card, count = best["gpu"], best["gpu_count"]
    device = gpus.find(str(card.value)) if card is not None else None
    if device is None or not device.nominal_bytes or count is None or count.value < 2:
        return facts
    total = count.value * to_gib(device.nominal_bytes)
    return [f for f in facts if f.name != "capacity_gib" or abs(f.value - total) > _ROUNDING * total]


_CARDS: Final = ("gpu", "gpu_count")
_ROUNDING: Final = 0.04
"""Share by which the sizes of several cards together may be rounded."""


def _serves(facts: Sequence[Fact]) -> bool:
    aims = [f for f in facts if f.name == "objective" and f.stated]
    return bool(aims) and max(aims, key=lambda f: f.confidence).value == "inference"


def _facts(lines: Sequence[Line], kinds: Sequence[Kind], everything: list[Line], words: Vocabulary) -> Iterator[Fact]:
    parts: dict[str, list[Line]] = {"prose": [], "settings": [], "log": [], "notes": []}
    for line, kind in zip(lines, kinds, strict=True):
        if kind in ("command", "config", "code"):
            parts["settings"].append(line)
            behind = _told_behind(line) if kind == "command" else None
            parts["prose"] += [said for said in (_quoted_before(line), behind) if said is not None]
            command = line if behind is None else line._replace(text=line.text.removesuffix(behind.text))
            parts["notes"].append(_ending(command))
        elif kind != "blank":
            parts[kind].append(line)
            if kind == "log" and not line.logged and _RE["spoken"].match(line.text):
                parts["prose"].append(line)
            row = _RE["row"].match(line.text) if kind == "log" else None
            # Columns that blanks set apart are a monitor's table, whose first number is which card it is.
            if row is not None and "    " not in row["value"].rstrip() and "  " not in row["key"].strip():
                parts["prose"].append(
                    line._replace(text=f"{row['key'].strip(' *`')}: {row['value'].replace('**', '').strip(' `')}")
                )
    parts = {name: distinct(part, repeats=8, characters=60_000) for name, part in parts.items()}
    prose, settings = parts["prose"], parts["settings"]
    yield from read_hardware(prose + parts["notes"], words, anywhere=everything)
    yield from read_models(prose, words, prose=True)
    yield from read_models(settings, words, prose=False)
    yield from read_words(prose, words)
    yield from read_traces(parts["log"] + settings, words)
    yield from read_objective(everything, words)
    yield from read_called(settings + prose, words, confidence=0.85)
    yield from read_settings(settings, sure=0.95)
    yield from read_settings(prose, sure=0.85, prose=True)
    yield from read_settings(parts["log"], sure=0.7)


def _ending(line: Line) -> Line:
    """A short line; of a long command its end, behind which people note their cards."""
    if len(line.text) < _SHORT:
        return line
    return line._replace(text=line.text[-_NOTE:].partition(" ")[2])


_SHORT: Final = 200
_NOTE: Final = 100


def _quoted_before(line: Line) -> Line | None:
    """The words that stand before a command on the same line, as a line of prose."""
    start = _RE["starts"].search(line.text)
    if start is None or start.start() < 12:
        return None
    return line._replace(text=line.text[: start.start()])


def _told_behind(line: Line) -> Line | None:
    """The words that go on behind a command on the same line, past a comma or a full stop that no quotes hold."""
    for end in _RE["goes_on"].finditer(line.text):
        before = line.text[: end.start()]
        if all(before.count(mark) % 2 == 0 for mark in "\"'") and before.count("{") == before.count("}"):
            return line._replace(text=line.text[end.end() :])
    return None


def _with_nodes(facts: list[Fact], lines: Sequence[Line], varied: list[Line], words: Vocabulary) -> list[Fact]:
    """GPUs per machine times machines, where a launcher names both; one GPU where only number 0 ever shows."""
    nodes = next((f.value for f in facts if f.name == "_nodes" and isinstance(f.value, int) and f.value > 1), 1)
    out = [
        replace(f, value=f.value * nodes)
        if f.name == "gpu_count" and f.origin in ("command", "config") and nodes > 1
        else f
        for f in facts
        if not f.name.startswith("_")
    ]
    if not any(f.name == "gpu_count" for f in out):
        out += _implied_count(out, lines, varied, words)
    return out


def _implied_count(
    facts: Sequence[Fact], lines: Sequence[Line], varied: Sequence[Line], words: Vocabulary
) -> Iterator[Fact]:
    """As many cards as a model is split over; one where only number 0 ever shows."""
    split = {name: next((f for f in facts if f.name == name and f.stated), None) for name in ("tp", "pp")}
    if (tp := split["tp"]) is not None and (tp.value > 1 or _serves(facts)):
        yield Fact("gpu_count", tp.value * (split["pp"].value if split["pp"] else 1), tp.span, "prose", 0.5)
        return
    first = next((line for line, _ in found_in(_RE["first"], lines, words)), None)
    if first is not None and not shows_several(varied, words):
        yield Fact("gpu_count", 1, first.span(), "log", 0.5)
