"""What the sizes in a sentence are of: a card's memory, the host's, what was used, asked for or free.

"64 GB of system RAM" is the host's, ``24G 显存`` the card's, "23.1GB/24GB used" both a share and a whole. The words
right before and behind a size tell; a size that nothing tells of is of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import doubt

_I: Final = re.IGNORECASE | re.ASCII
_RE: Final = patterns(__file__)
_MIB: Final = 1024.0
DIGITS: Final = frozenset("0123456789")


def sizes_of(
    line: Line, cards: Sequence[tuple[int, int]], count: int = 1, *, names: Sequence[tuple[int, int]] = ()
) -> Iterator[Fact]:
    """Facts in GiB of the sizes in a line.

    :param cards: the places of the names of cards.
    :param count: how many cards the line speaks of: what all of them hold together is divided by it.
    :param names: the places of names whose numbers are no sizes: rented machines (``a2-ultragpu-4g``), MIG slices.
    """
    text = line.text
    if DIGITS.isdisjoint(text) or ("g" not in line.low and "mi" not in line.low):
        return
    shared: set[int] = set()
    for found in _RE["of_whole"].finditer(text):
        shared.update((found.start("part"), found.start("whole")))
        yield from _share(line, found)
    for found in _RE["size"].finditer(text):
        if found.start("n") in shared or any(first <= found.start("n") < last for first, last in names):
            continue
        gib = float(found["n"]) / (_MIB if found["unit"] in "mM" else 1.0)
        start, end = found.start("n"), found.end("unit")
        while end < found.end() and text[end : end + 1].isalpha():
            end += 1
        before, behind = text[max(0, start - 44) : start], text[max(end, found.end()) :][:40]
        span = line.span(start + 1)
        field = _size_field(before, behind)
        if field is not None and not _RE["host_before"].search(before):
            yield Fact(field, gib, span, "prose", 0.6 if field != "reserved_unallocated_gib" else 0.8)
            continue
        inside = any(s <= start and end <= e for s, e in cards)
        if found["count"] and found["unit"] in "gG" and not inside and not _RE["host_behind"].match(behind):
            sure = 0.7
        else:
            sure = 0.85 if inside else _capacity(text, start, end, before, behind, cards)
        if sure and (_RE["in_all_before"].search(before) or _RE["in_all_behind"].match(behind)):
            if count <= 1:
                continue  # what cards hold together that nobody counts is no card's
            gib /= count
        beside = inside or any(
            0 <= first - found.end() <= _BESIDE or 0 <= start - last <= _BESIDE for first, last in cards
        )
        if not sure or not 2 <= gib <= (_MAX_UNIFIED_GIB if beside else 300) or (found["unit"] in "mM" and gib < 4):
            continue
        minus = 1.5 * doubt(text, start, end)
        sure = max(0.5 if minus < 0.8 else 0.2, sure - minus)
        yield Fact("capacity_gib", gib, span, "prose", sure)
        several = found["count"] or found["times"]
        if several and not inside and 1 <= int(several) <= 20000:
            yield Fact("gpu_count", int(several), span, "prose", 0.75)


_MAX_UNIFIED_GIB: Final = 1024
"""What the largest machine whose card shares the host's memory may hold; other cards hold less than 300."""
_BESIDE: Final = 2
"""Characters between a size and the name of the card that it is of."""


def _size_field(before: str, behind: str) -> str | None:
    """What an amount is of that a sentence tells as logs do."""
    ends = _RE.group("behind")
    for key, begins in _RE.group("before").items():
        if begins.search(before) and ends[key].match(behind):
            return key.partition(":")[0]
    return None


def _share(line: Line, found: re.Match[str]) -> Iterator[Fact]:
    gib = float(found["whole"]) / (_MIB if found["unit"] in "mM" else 1.0)
    part = float(found["part"]) / (_MIB if (found["small"] or found["unit"]) in "mM" else 1.0)
    around = line.text[max(0, found.start() - 40) : found.end() + 24]
    if found["host"] or _RE["host_before"].search(line.text[max(0, found.start() - 24) : found.start()]):
        return
    if not 2 <= gib <= 300 or part > gib or not _RE["about_memory"].search(around):
        return
    yield Fact("capacity_gib", gib, line.span(found.start() + 1), "prose", 0.66)
    if found["used"]:
        yield Fact("process_gib", part, line.span(found.start() + 1), "prose", 0.7)


def _capacity(text: str, start: int, end: int, before: str, behind: str, cards: Sequence[tuple[int, int]]) -> float:
    """How sure a size is a card's memory; 0.0: it is something else."""
    if _RE["used_behind"].match(behind):
        return 0.0
    if (_RE["host_behind"].match(behind) and not _RE["card_behind"].match(behind)) or _RE["host_before"].search(before):
        near = (
            any(0 <= start - e <= 2 for _, e in cards)
            and before[-1:] in "(（,，"
            and not re.match(r"[^)）]{0,6}[a-z]* ?(?:system|host|cpu)", behind, _I)
        )
        return 0.7 if near and before[-1:] in "(（" else 0.0
    used = _RE["used_before"].search(before) is not None
    touching = any(
        (0 <= start - e <= 30 and _RE["touches"].match(text[e:start]))
        or (0 <= s - end <= 24 and _RE["tied"].match(text[end:s]) and not (used and " on " in text[end:s]))
        for s, e in cards
    )
    if touching:
        return 0.85
    if used:
        return 0.0
    if _RE["card_behind"].match(behind):
        return 0.78
    if _RE["card_before"].search(before):
        return 0.75
    return 0.7 if _RE["owned"].search(before) else 0.0
