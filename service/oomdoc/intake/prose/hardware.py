"""Cards, how many, and how large: ``8×A100 80G``, ``4 张 V100 16GB``, ``a single A6000``, ``两张 24G 的显卡``.

The catalogue's reader (:func:`oomkb.catalog.gpus.find_all`) finds the names. Counts stand before or behind a name or a
word for cards. The words around a size say what it is of (:mod:`oomdoc.intake.prose.sizes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.numbers import COUNT, to_count
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import doubt, is_left
from oomdoc.intake.prose.sizes import DIGITS, sizes_of
from oomdoc.intake.sieve import Vocabulary, candidates, found_in
from oomkb.units import GIB

if TYPE_CHECKING:
    from oomkb.catalog.gpus import GpuMention
    from oomkb.memory.device import Device

_I: Final = re.IGNORECASE | re.ASCII
_RE: Final = patterns(__file__, count=COUNT)
_ONE: Final = frozenset({"a", "an", "one", "一"})
_ARTICLE: Final = 0.65
"""How sure a count is that only an article states."""
_RENTED: Final = 0.92
"""How sure the name of a rented machine is of its cards."""
_MAX_PER_MACHINE: Final = 8
"""Cards of one machine in a usual server (HGX, DGX)."""
_LENGTHS: Final = 256
"""A bare multiple of it before a card's name is a length in tokens: ``4096 a100 80g``."""


def shows_several(lines: Sequence[Line], words: Vocabulary) -> bool:
    """Whether any line shows several cards at work."""
    return any(found_in(_RE["several"], lines, words))


def read_hardware(lines: Sequence[Line], words: Vocabulary, *, anywhere: Sequence[Line]) -> Iterator[Fact]:
    """Facts ``gpu``, ``gpu_count``, ``capacity_gib`` and the sizes that sentences tell, from lines that may name them.

    :param anywhere: every line: they show how many were launched, and whether several cards are at work.
    """
    from oomkb.catalog import gpus

    for line in candidates(_RE["launched"], anywhere, words):
        for found in _RE["launched"].finditer(line.text):
            yield Fact("gpu_count", int(found["tasks"] or found["ranks"] or found["slots"]), line.span(), "log", 0.72)
    several = shows_several(anywhere, words)
    lone = not several and any(found_in(_RE["notebook"], anywhere, words))
    counted = {id(line) for line in candidates(_RE["cards"], lines, words)}
    used = {id(line) for line in candidates(_RE["only"], lines, words)}
    odd = {id(line) for line in candidates(_RE["unknown"], lines, words)}
    for line in lines:
        mentions = [] if DIGITS.isdisjoint(line.text) else gpus.find_all(line.text)
        places = [(m.start, m.end) for m in mentions]
        facts = [fact for mention in mentions for fact in _named(line, mention, several=several, lone=lone)]
        if id(line) in odd:
            for found in _RE["unknown"].finditer(line.text):
                if not any(start < found.end() and found.start() < end for start, end in places):
                    places.append(found.span())
                    facts += _card(line, found[0], *found.span(), None, several=several, lone=lone)
        if id(line) in counted:
            facts += _counted(line)
        yield from facts
        if id(line) in used:
            for found in _RE["only"].finditer(line.text):
                yield Fact(
                    "gpu_count", to_count(found["n"] or found["zh"]), line.span(found.start() + 1), "prose", 0.86
                )
        counts = [fact for fact in facts if fact.name == "gpu_count"]
        count = max(counts, key=lambda fact: fact.confidence).value if counts else 1
        places = [place for place in places if not is_left(line.text, *place)]
        names = [(m.start, m.end) for m in mentions if m.machine is not None or _RE["slice"].search(m.text)]
        yield from sizes_of(line, places, count, names=names)


def named_card(text: str, mention: GpuMention) -> tuple[str, int, int | None] | None:
    """The card as the text names it, where that begins, and how many; ``None`` where it is none or is not there."""
    if mention.machine is not None:
        cards, rented = mention.machine.cards, _count(text, mention.start, mention.end)[0] or 1
        return mention.machine.card, mention.start, cards and cards * rented
    before = text[max(0, mention.start - 12) : mention.start]
    from oomkb.catalog.gpu_text import in_list

    listed = before.endswith("/") and (in_list(text, mention.start, mention.end) or _RE["counted"].search(before))
    if (before.endswith(("/", "\\", "_", "#", "$")) and not listed) or (
        before.endswith("=") and not before.endswith("==")
    ):
        return None
    if _RE["lacking"].search(text[max(0, mention.start - 40) : mention.start]):
        return None
    whole = _RE["trailing"].sub("", mention.text)  # "4090*2" begins with no count
    lead = _RE["leading"].match(whole)
    counted = mention.count is not None and lead is not None and (lead["n"] or lead["zh"])
    skip = lead.end() if lead is not None and (counted or not (lead["n"] or lead["zh"])) else 0
    begin = mention.start + skip
    name = _RE["trailing"].sub("", _RE["words_for_cards"].split(whole[skip:].lstrip(" ,(（"), maxsplit=1)[0])
    bare = name.rstrip("sS")
    if bare.isdigit() and (
        (name != bare and mention.count is None and not _RE["owned"].search(before))
        or _RE["numbered"].search(text[max(0, begin - 12) : begin])
    ):
        return None
    name = _with_box_size(_RE["plural"].sub("", name).strip(" -,"), mention.device)
    count = _count(text, begin, mention.end)[0] or mention.count
    dated = mention.device.unified or "mac" in name.lower()  # "2021 MacBook Pro"
    return name, begin, None if dated and count in _YEARS else count


_YEARS: Final = range(1990, 2041)


def _with_box_size(name: str, device: Device) -> str:
    """A machine of unified memory by the size that it is sold with, of which the GPU gets a part: ``M3 Max with 96GB``.

    Without it the size would be the GPU's own.
    """
    from oomkb.catalog import gpus

    box_bytes = device.nominal_bytes if device.unified else None
    named = gpus.find(name) if box_bytes else None
    if not box_bytes or (named is not None and named.nominal_bytes == box_bytes):
        return name
    return f"{name} {box_bytes / GIB:g}GB"


def _named(line: Line, mention: GpuMention, *, several: bool, lone: bool) -> Iterator[Fact]:
    """A card that the catalogue knows, with what stands around its name."""
    named = named_card(line.text, mention)
    if named is None:
        return
    name, start, cards = named
    if mention.machine is not None:
        span, rented = line.span(start + 1), (cards or 0) // (mention.machine.cards or 1)
        yield Fact("gpu", name, span, "prose", _RENTED)
        if cards:
            yield Fact("gpu_count", cards, span, "prose", _RENTED)
        if rented > 1:
            yield Fact("node_count", rented, span, "prose", _RENTED)
        return
    if (piece := _RE["slice"].search(mention.text)) is not None:
        yield Fact("capacity_gib", float(piece[1]), line.span(start + 1), "prose", 0.86)
    yield from _card(line, name, start, mention.end, mention.count, several=several, lone=lone)


def _card(
    line: Line, name: str, start: int, end: int, count: int | None, *, several: bool, lone: bool
) -> Iterator[Fact]:
    text, span = line.text, line.span(start + 1)
    minus = doubt(text, start, end)
    least = 0.5 if minus < 0.5 else 0.2
    yield Fact(
        "gpu", name, span, "prose", max(least, 0.9 - 1.5 * minus) + (0.03 if _RE["product"].search(name) else 0.0)
    )
    number, sure = _count(text, start, end)
    if number is None or (count is None and number in _YEARS):
        number, sure = count, 0.85
    if number is None and not several and (lone or _RE["consumer"].search(name)):
        number, sure = 1, 0.55
    if number is None and (cores := _RE["cores"].search(text, start, end + 8)) is not None:
        each = 2 if cores["generation"] == "4" or cores["kind"].lower() == "p" else 1
        number, sure = max(1, int(cores["cores"]) // each), 0.7
    if number is not None and 1 <= number <= 20000:
        # "a V100" beside "GPU 7" names the kind of card, not how many there are.
        sure = 0.45 if several and number == 1 and sure == _ARTICLE else max(least, sure - 1.5 * minus)
        yield Fact("gpu_count", number, span, "prose", sure)


def _count(text: str, start: int, end: int) -> tuple[int | None, float]:
    """How many of the card whose name stands there, and how sure that is."""
    before, after = text[max(0, start - 60) : start], text[end : end + 40]
    behind = _RE["after"].match(after) or _RE["after"].search(text, max(start, end - 4), end + 8)
    if behind is not None and behind["cards"] in ("单", "一"):
        behind = None
    if (found := _RE["before"].search(before)) is not None:
        word = found["n"].lower()
        count = to_count(word) * int(found["nodes"] or 1)
        if count >= _LENGTHS and count % _LENGTHS == 0 and not found["times"].strip():
            return None, 0.0
        ahead = before[: found.start("n")]
        if (nodes := _RE["nodes"].search(ahead)) is not None:
            count = _in_all(count, to_count(nodes["n"]), after)
        elif _RE["total"].search(ahead) is not None:
            return count, 0.95
        elif "台" in found["times"]:
            each = to_count(behind["times"] or behind["cards"]) if behind is not None else None
            return (count * each, 0.92) if each is not None else (count, 0.5)
        return count, _ARTICLE if word in _ONE else 0.9
    if behind is not None:
        return to_count(behind["times"] or behind["cards"]), 0.88
    return None, 0.0


def _in_all(count: int, machines: int, after: str) -> int:
    """Cards of all machines: a count behind them is each one's, unless it is said to be all, or more than one holds."""
    shared = machines > 1 and count % machines == 0
    said = re.match(r"[^.;。；\n]{0,16}?(?:\btotal|\bin all|\baltogether|共|总)", after, _I) is not None
    return count if shared and (said or count > _MAX_PER_MACHINE) else count * machines


def _counted(line: Line) -> Iterator[Fact]:
    """Cards that are not named: ``8 GPUs with 24G each``, ``单卡``."""
    text = line.text
    for found in _RE["cards"].finditer(text):
        word, ahead = found["n"].lower(), text[max(0, found.start() - 60) : found.start()]
        if word in _ONE and re.match(r"\s{0,2}(?:time|by|of)\b", text[found.end() : found.end() + 8]):
            continue
        nodes = int(found["nodes"]) if found["nodes"] and not _RE["parts"].search(ahead) else 1
        machines = None if found["nodes"] else _RE["nodes"].search(ahead)
        count = to_count(word) * nodes * (to_count(machines["n"]) if machines is not None else 1)
        if not 1 <= count <= 20000 or _RE["series"].fullmatch(found["n"]):
            continue
        each = word[0] == "单" and _RE["each"].match(text, found.end()) is not None
        sure = 0.52 if each else 0.95 if _RE["total"].search(ahead) else 0.58 if word in _ONE else 0.8
        if re.search(r"(?:gpu|卡|显卡)\W{0,2}\Z", ahead, _I):
            sure = 0.4
        minus = 1.5 * doubt(text, found.start(), found.end())
        yield Fact(
            "gpu_count", count, line.span(found.start() + 1), "prose", max(0.5 if minus < 0.5 else 0.2, sure - minus)
        )
