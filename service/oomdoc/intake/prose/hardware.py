"""Cards, how many, and how large: ``8×A100 80G``, ``4 张 V100 16GB``, ``a single A6000``, ``两张 24G 的显卡``.

The catalogue's reader (:func:`oomkb.catalog.gpus.find_all`) finds the names. Counts stand before or behind a name or a
word for cards. What a size is of is told by the words around it (:mod:`oomdoc.intake.prose.sizes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.numbers import COUNT, to_count
from oomdoc.intake.prose.sizes import DIGITS, sizes_of
from oomdoc.intake.prose.stance import doubt
from oomdoc.intake.sieve import Expression, Vocabulary, candidates

if TYPE_CHECKING:
    from oomkb.catalog.gpus import GpuMention

__all__ = ["read_hardware", "shows_several"]

_I: Final = re.IGNORECASE | re.ASCII
_TIMES: Final = r"(?:[x×✕*]|\\\*|[张块个卡颗片枚]|台)"
_SPARE: Final = (
    r"(?:(?:nvidia|geforce|tesla|rtx|英伟达|amd|的|of|左右|多|昇腾|ascend|\d{1,3} ?g(?:i?b)?(?: ?的)?|显存|显卡"
    r"|consumer|idle"
    r"|spare|free|local|rented|identical|gpus?)[\s\-]{0,3}){0,4}"
)
_BEFORE: Final = Expression(
    rf"(?:(?P<nodes>\d{{1,3}}) ?[x×*] ?)?(?<![A-Za-z0-9_.\-/])(?<![a-rt-z]=)(?P<n>{COUNT}) {{0,2}}"
    rf"(?P<times>{_TIMES}{{0,2}}|[ -]x) {{0,2}}{_SPARE}\Z",
    _I,
)
_AFTER: Final = Expression(
    rf"['’]?s?(?: ?[(（/\-]?\d{{1,3}} ?g(?:i?b)?[)）]?)? {{0,2}}(?:gpus? ?)?"
    rf"(?:[x×*] ?(?P<times>\d{{1,3}})(?!\w|\.\d)|[,，、 ]{{0,2}}(?P<cards>{COUNT}) ?(?:卡|张|块"
    rf"|gpus\b)(?!\s{{0,2}}[x×*\d]))",
    _I,
)
_GLUED: Final = Expression(r"(?<![\w.])[x×](?P<n>\d{1,3}) \Z", _I)
"""``x4 A10G``"""
_CARDS: Final = Expression(
    rf"(?:(?<![A-Za-z0-9_.\-/=:])|(?=[单双两一四八]))(?:(?P<nodes>\d{{1,3}}) ?(?:nodes? ?|台?机?器? ?)?[x×*] ?)?"
    rf"(?P<n>{COUNT})(?: {{0,2}}|-(?=gpu|card))(?:[x×*] {{0,2}})?(?:\d{{1,3}} ?g(?:i?b)? {{0,2}}(?:vram )?(?:的 ?)?)?"
    r"(?:(?:nvidia|geforce|tesla|local|available|identical|visible|physical|more|different) )?(?:gpus?\b(?!-)"
    r"|cards?\b|显卡"
    r"|卡(?!死|住|顿|在|了|到)|[张块](?:显)?卡|npus?\b|张(?=\s{0,2}(?:显卡|gpu|npu|\d{1,3} ?g))|[ha]\d00-class gpus)",
    _I,
)
_ONLY: Final = Expression(
    rf"(?:only|just|actually)(?: am| i'm)? (?:us(?:e|es|ed|ing)|run(?:ning)? on|train(?:ing)? on) (?P<n>{COUNT})"
    rf"(?: of (?:them|the|my|these)|(?: of the)? (?:gpus?|cards?)\b)"
    rf"|(?:只用(?:了|到)?(?:其中)?|用(?:了|到)?其中)的? ?(?P<zh>{COUNT}) ?[张块个卡]",
    _I,
)
"""How many of the cards there are that are used."""
_LAUNCHED: Final = Expression(
    r"Initializing (?P<tasks>\d{1,5}) distributed tasks"
    r"|(?:mpirun|mpiexec|horovodrun)\b[^\n]{0,160}? -np? (?P<ranks>\d{1,5})(?!\w)",
    _I,
)
_NODES: Final = Expression(
    rf"(?<![A-Za-z0-9.])(?P<n>{COUNT}) ?(?:(?:台|个|(?:sets?|groups?) of )?(?:机器|节点|服务器|nodes?|machines?"
    rf"|servers?)"
    r"[^。.\n]{0,24}?(?:每台|每天机器|每个节点|每节点|each|per node|every|with|of|containing|[x×*])[^。.\n]{0,8}"
    r"|(?:台|nodes?[ ]?[,，(（:]|节点) {0,2})\Z",
    _I,
)
"""Machines, before the count of each one's cards."""
_TOTAL: Final = Expression(r"(?:\btotal(?:ly)?(?: of)?|共计?|总共|合计|all) {0,2}\Z", _I)
_PARTS: Final = Expression(r"(?:accum\w{0,12}|steps|bs|size|batch(?:es)?)\W{0,3}\Z", _I)
"""Before a factor that is no number of machines: ``bs 2 × accum 8 × 4 GPUs``."""
_ONE: Final = frozenset({"a", "an", "one", "一"})
_ARTICLE: Final = 0.65
"""How sure a count is that only an article states."""
_EACH: Final = Expression(r"[显存内约是有（( ]{0,5}\d{1,3} ?g", re.IGNORECASE)
"""After "单卡": the size of each card is told."""
_SERIES: Final = re.compile(r"10[5-8]0|20[678]0|30[5-9]0|40[6-9]0|50[6-9]0")
"""Card names that are numbers: "3090显卡" is no count."""
_SEVERAL: Final = Expression(
    r"multi-?gpu|distributed|多卡|多机|几张卡|nproc|num_processes|\[?rank ?[1-9]|(?:GPU|NPU|cuda:) ?[1-9]\b"
    r"|tensor.parallel|gpus\b|\bcards\b|--tp\b|world.?size|NNODES|DataParallel|pid=|NVLink",
    _I,
)
_NOTEBOOK: Final = Expression(r"(?<![a-z])colab(?![a-z])|google colaboratory", _I)
"""Where one card is what there is."""
_CONSUMER: Final = Expression(
    r"RTX|GTX|GeForce|TITAN|\b[2-5]0[5-9]0|Mac|Apple|Radeon|RX ?\d{4}|\d00 XTX?|Arc|Jetson|GB10\b", _I
)
_PRODUCT: Final = Expression(r"-(?:SXM\d?|PCIe)|HBM\d|NVIDIA [A-Z]", _I)
"""The product's full name, as drivers print it: more telling than what people call it."""
_SLICE: Final = Expression(r"\dg\.(\d{1,3})gb", _I)
"""A part of a card, by its profile (NVIDIA's MIG user guide)."""
_CORES: Final = Expression(r"v(?P<generation>[2-6])(?P<kind>[ep]?)-(?P<cores>\d{1,4})", _I)
"""A slice of TPUs. Versions 4 and 5p count cores, of which a chip, one device, has two; of versions 2 and 3 every core
is a device, and chips of 5e and 6e have one (Cloud TPU's pages on each version)."""
_UNKNOWN: Final = Expression(
    r"(?<![\w.-])(?:(?:NVIDIA |AMD )?(?:GeForce |Radeon )?(?:RTX|GTX|RX"
    r"|Radeon(?: PRO)?) ?(?:PRO ?)?[A-Z]?\d{3,4}(?: ?(?:Ti|XTX?|SUPER|Pro|Ada)\b){0,2}"
    r"|(?:Ascend|昇腾|MTT|MLU|DCU|沐曦|海光|天数|Gaudi|TPU)[ -]?(?:NPU|GPU|v?[A-Z]{0,2}\d{0,4}[A-Z]?(?:-\d{1,4})?)"
    r"|[AHV]-[18]00|(?:Quadro|Tesla|TITAN)[- ][A-Z]{1,3}\d{0,4}(?![a-z]))",
    re.ASCII,
)
"""Cards that the catalogue does not hold, after their makers' words."""
_LEADING: Final = Expression(
    r"(?:gpus?|cards?|device|显卡)?[^\w一-鿿]{0,3}(?:(?:(?P<n>\d{1,4})(?:(?: ?(?:[x×*✕]|\\\*|[张卡块片个台枚])){1,2}"
    r"| gpus?(?: of)?| (?!g))"
    r"|(?P<zh>[单一两二双三四五六七八九十])[张卡块片个台枚]?)[ \-]{0,2})?"
    r"(?:(?:\d{1,3} ?g(?:i?b)?)(?:[ \-]|的|显存){1,3})?(?=.*[a-z0-9])",
    _I,
)
_TRAILING: Final = re.compile(r"(?: ?[x×✕*] ?\d{1,4})?[\s)）(（,，\-:：]{0,3}\Z")
_WORDS_FOR_CARDS: Final = re.compile(
    r"[ ,]{0,2}(?:(?<=[\w ])\b(?:graphics )?(?:gpus?|cards?)\b|(?<=.)[(（)）]| with\b|显卡)", _I
)
_PLURAL: Final = re.compile(r"(?<=\d)(?<!L40)s(?=[ -]?\d{2,3} ?[gG])")
_OWNED: Final = Expression(r"\b(?:on|my|our|these|the|of|with|using|have|and|or|two|three|four) \Z", _I)
_NUMBERED: Final = Expression(r"(?:[:\-]|pid|port|steps?|[GM]iB) ?\Z", _I)
"""Before a bare number that is no card."""


def shows_several(lines: Sequence[Line], words: Vocabulary) -> bool:
    """Whether any line shows several cards at work."""
    return any(_SEVERAL.search(line.raw) for line in candidates(_SEVERAL, lines, words))


def read_hardware(lines: Sequence[Line], words: Vocabulary, *, anywhere: Sequence[Line]) -> Iterator[Fact]:
    """Facts ``gpu``, ``gpu_count``, ``capacity_gib`` and the sizes that sentences tell, from lines that may name them.

    :param anywhere: every line: they show how many were launched, and whether several cards are at work.
    """
    from oomkb.catalog import gpus

    for line in candidates(_LAUNCHED, anywhere, words):
        for found in _LAUNCHED.finditer(line.text):
            yield Fact("gpu_count", int(found["tasks"] or found["ranks"]), line.span(), "log", 0.72)
    several = shows_several(anywhere, words)
    lone = not several and any(_NOTEBOOK.search(line.raw) for line in candidates(_NOTEBOOK, anywhere, words))
    counted = {id(line) for line in candidates(_CARDS, lines, words)}
    used = {id(line) for line in candidates(_ONLY, lines, words)}
    odd = {id(line) for line in candidates(_UNKNOWN, lines, words)}
    for line in lines:
        mentions = [] if DIGITS.isdisjoint(line.text) else gpus.find_all(line.text)
        places = [(m.start, m.end) for m in mentions]
        for mention in mentions:
            yield from _named(line, mention, several=several, lone=lone)
        if id(line) in odd:
            for found in _UNKNOWN.finditer(line.text):
                if not any(start < found.end() and found.start() < end for start, end in places):
                    places.append(found.span())
                    yield from _card(line, found[0], *found.span(), None, several=several, lone=lone)
        if id(line) in counted:
            yield from _counted(line)
        if id(line) in used:
            for found in _ONLY.finditer(line.text):
                yield Fact(
                    "gpu_count", to_count(found["n"] or found["zh"]), line.span(found.start() + 1), "prose", 0.86
                )
        yield from sizes_of(line, places)


def _named(line: Line, mention: GpuMention, *, several: bool, lone: bool) -> Iterator[Fact]:
    """A card that the catalogue knows, with what stands around its name."""
    text = line.text
    before = text[max(0, mention.start - 12) : mention.start]
    if before.endswith(("/", "\\", "_", "#", "$")) or (before.endswith("=") and not before.endswith("==")):
        return
    lead = _LEADING.match(mention.text)
    counted = mention.count is not None and lead is not None and (lead["n"] or lead["zh"])
    skip = lead.end() if lead is not None and (counted or not (lead["n"] or lead["zh"])) else 0
    name = _TRAILING.sub("", _WORDS_FOR_CARDS.split(mention.text[skip:].lstrip(" ,(（"), maxsplit=1)[0])
    bare = name.rstrip("sS")
    if bare.isdigit() and (
        (name != bare and mention.count is None and not _OWNED.search(before)) or _NUMBERED.search(before)
    ):
        return
    name = _PLURAL.sub("", name).strip(" -,")
    start = mention.start + skip
    if (piece := _SLICE.search(mention.text)) is not None:
        yield Fact("capacity_gib", float(piece[1]), line.span(start + 1), "prose", 0.86)
    yield from _card(line, name, start, mention.end, mention.count, several=several, lone=lone)


def _card(
    line: Line, name: str, start: int, end: int, count: int | None, *, several: bool, lone: bool
) -> Iterator[Fact]:
    text, span = line.text, line.span(start + 1)
    minus = doubt(text, start, end)
    least = 0.5 if minus < 0.5 else 0.2
    yield Fact("gpu", name, span, "prose", max(least, 0.9 - 1.5 * minus) + (0.03 if _PRODUCT.search(name) else 0.0))
    number, sure = _count(text, start, end)
    if number is None:
        number, sure = count, 0.85
    if number is None and not several and (lone or _CONSUMER.search(name)):
        number, sure = 1, 0.55
    if number is None and (cores := _CORES.search(text, start, end + 8)) is not None:
        each = 2 if cores["generation"] == "4" or cores["kind"].lower() == "p" else 1
        number, sure = max(1, int(cores["cores"]) // each), 0.7
    if number is not None and 1 <= number <= 20000:
        # "a V100" beside "GPU 7" names the kind of card, not how many there are.
        sure = 0.45 if several and number == 1 and sure == _ARTICLE else max(least, sure - 1.5 * minus)
        yield Fact("gpu_count", number, span, "prose", sure)


def _count(text: str, start: int, end: int) -> tuple[int | None, float]:
    """How many of the card whose name stands there, and how sure that is."""
    before, after = text[max(0, start - 60) : start], text[end : end + 40]
    behind = _AFTER.match(after) or _AFTER.search(text[max(start, end - 4) : end + 8])
    if behind is not None and behind["cards"] in ("单", "一"):
        behind = None
    if (found := _BEFORE.search(before)) is not None:
        word = found["n"].lower()
        count = to_count(word) * int(found["nodes"] or 1)
        ahead = before[: found.start("n")]
        if (nodes := _NODES.search(ahead)) is not None:
            count *= to_count(nodes["n"])
        elif _TOTAL.search(ahead) is not None:
            return count, 0.95
        elif "台" in found["times"]:
            return (count * int(behind["times"]), 0.92) if behind is not None and behind["times"] else (count, 0.5)
        return count, _ARTICLE if word in _ONE else 0.9
    if (glued := _GLUED.search(before)) is not None:
        return int(glued["n"]), 0.85
    if behind is not None:
        return to_count(behind["times"] or behind["cards"]), 0.88
    return None, 0.0


def _counted(line: Line) -> Iterator[Fact]:
    """Cards that are not named: ``8 GPUs with 24G each``, ``单卡``."""
    text = line.text
    for found in _CARDS.finditer(text):
        word, ahead = found["n"].lower(), text[max(0, found.start() - 60) : found.start()]
        if word in _ONE and re.match(r"\s{0,2}(?:time|by|of)\b", text[found.end() : found.end() + 8]):
            continue
        nodes = int(found["nodes"]) if found["nodes"] and not _PARTS.search(ahead) else 1
        machines = None if found["nodes"] else _NODES.search(ahead)
        count = to_count(word) * nodes * (to_count(machines["n"]) if machines is not None else 1)
        if not 1 <= count <= 20000 or _SERIES.fullmatch(found["n"]):
            continue
        each = word[0] == "单" and _EACH.match(text, found.end()) is not None
        sure = 0.52 if each else 0.95 if _TOTAL.search(ahead) else 0.58 if word in _ONE else 0.8
        if re.search(r"(?:gpu|卡|显卡)\W{0,2}\Z", ahead, _I):
            sure = 0.4
        minus = 1.5 * doubt(text, found.start(), found.end())
        yield Fact(
            "gpu_count", count, line.span(found.start() + 1), "prose", max(0.5 if minus < 0.5 else 0.2, sure - minus)
        )
