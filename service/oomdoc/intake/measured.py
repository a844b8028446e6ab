"""Figures that a person measured at several sizes of a run: ``bs 1: 26.4 GiB, bs 2: 35.1 GiB``.

Figures that stand in a list, each with its size in one order, are read as the list that they are; else each figure has
the batch or the length that stands nearest to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Final

from oomdoc.evidence import Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.sieve import Vocabulary, candidates

_RE: Final = patterns(__file__)
SIZED: Final = _RE["sized"]
_MEASURED: Final = _RE["measured"]
_GIB: Final = 1 << 30
LONG: Final = 2_000
"""Characters of a line that are looked at."""
_MAX_LINES_OF_A_LIST: Final = 40
_MIN_PLAIN_PAIRS: Final = 3
"""Pairs of a list of which no word says what it holds."""
_MAX_BEFORE_LIST: Final = 48
"""Characters before a list in which what its sizes are of is named."""
_MAX_ASKED_BATCH: Final = 512
_MAX_BATCH, _MIN_LENGTH = 64, 256
"""Sizes without a name: batches up to the one, lengths from the other."""


def measured(lines: Sequence[Line], words: Vocabulary) -> Iterator[Signal]:
    """``worked-at`` for each size that somebody measured at a batch or a length."""
    listed = list(_listed(lines))
    if listed:
        yield from listed
        return
    alone = list(_beside(lines, words))
    yield from alone
    for line in list(candidates(SIZED, lines, words))[:_MAX_MEASURED] if alone else ():
        for found in SIZED.finditer(line.raw[:LONG]):
            data = _size_of(found)
            if data["field"] == alone[0].data["field"]:
                yield Signal("size-beside", line.span(found.start() + 1), MappingProxyType(data))


def _listed(lines: Sequence[Line]) -> Iterator[Signal]:
    """The longest list of sizes and figures in one order: ``1024: 22G, 2048: 28G``, ``22 GB at 1024, 28 at 2048``.

    With them ``size-beside``: further sizes of that kind, and of memory, that stand outside of it.
    """
    rows = lines[:_MAX_LINES_OF_A_LIST]
    text = "\n".join(line.raw[:LONG] for line in rows)
    numbers = list(_RE["entry"].finditer(text))
    best: list[tuple[re.Match[str], re.Match[str]]] = []
    for first in range(len(numbers) - 3):
        run = _run_from(text, numbers, first)
        if len(run) > len(best):
            best = run
    field = _field_of(text, best) if best else None
    if field is None:
        return
    for size, figure in best:
        shown = {"shown_bytes": round(_value(figure) * _GIB), "measured": True}
        yield _signal("worked-at", rows, text, figure, {"field": field, "value": round(_value(size)), **shown})
    listed = {number.start() for pair in best for number in pair}
    for number in numbers:
        if number.start() in listed or _of_other(text, number) or _named_otherwise(text, number, field):
            continue
        value = round(_value(number))
        if number["unit"]:
            yield _signal("size-beside", rows, text, number, {"size_bytes": value * _GIB})
        elif "." not in number["n"] and (value >= _MIN_LENGTH if field == "seq_len" else 1 < value <= _MAX_ASKED_BATCH):
            yield _signal("size-beside", rows, text, number, {"field": field, "value": value})


def _signal(name: str, rows: Sequence[Line], text: str, number: re.Match[str], data: dict[str, object]) -> Signal:
    """A signal at the place of a number in the joined lines."""
    row, column = rows[text.count("\n", 0, number.start())], number.start() - text.rfind("\n", 0, number.start())
    return Signal(name, row.span(column), MappingProxyType(data))


def _run_from(text: str, numbers: Sequence[re.Match[str]], first: int) -> list[tuple[re.Match[str], re.Match[str]]]:
    """Pairs of a size and a figure from one number on, as long as their order and their joints stay the same."""
    figure_first = numbers[first]["unit"] is not None
    out: list[tuple[re.Match[str], re.Match[str]]] = []
    for one, two in zip(numbers[first::2], numbers[first + 1 :: 2], strict=False):
        size, figure = (two, one) if figure_first else (one, two)
        between = text[one.end() : two.start()]
        if out and _RE["next"].fullmatch(text[_last(out[-1]) : one.start()]) is None:
            break
        if _RE["within"].fullmatch(between) is None or size["unit"] or "." in size["n"] or _of_other(text, size):
            break
        if figure["unit"] is None and (figure["k"] or not (out or ("." in figure["n"] and _is_headed(text)))):
            break
        if out and not (_value(out[-1][0]) < _value(size) and _value(out[-1][1]) <= _value(figure)):
            break
        out.append((size, figure))
    return out if len(out) > 1 else []


def _is_headed(text: str) -> bool:
    """Whether their unit, and that they were measured, stand apart from the figures: ``bs->peak GiB: 1->19.5``."""
    return _RE["header"].search(text) is not None and _MEASURED.search(text) is not None


def _last(pair: tuple[re.Match[str], re.Match[str]]) -> int:
    return max(one.end() for one in pair)


def _of_other(text: str, size: re.Match[str]) -> bool:
    """Whether a number counts cards, requests, steps and the like."""
    before = text[max(0, size.start() - 16) : size.start()]
    return _RE["other_behind"].match(text, size.end()) is not None or _RE["other_before"].search(before) is not None


def _named_otherwise(text: str, number: re.Match[str], field: str) -> bool:
    """Whether the name right before a number is that of the other kind of size: ``seq 2048`` in a list of batches."""
    before = list(_RE["names"].finditer(text, max(0, number.start() - 32), number.start()))
    near = bool(before) and number.start() - before[-1].end() <= _MAX_TO_ITS_NAME
    return near and (before[-1]["xb"] is None) == (field == "micro_batch")


_MAX_TO_ITS_NAME: Final = 4
"""Characters between the name of a size and its number."""


def _size_of(found: re.Match[str]) -> dict[str, object]:
    """The field and the value of a batch or a length with its name."""
    return {"field": "micro_batch" if found["xb"] else "seq_len", "value": count_of(found["n"])}


def _value(number: re.Match[str]) -> float:
    return float(number["n"].replace(",", "")) * (1024 if number["k"] else 1)


def _field_of(text: str, pairs: Sequence[tuple[re.Match[str], re.Match[str]]]) -> str | None:
    """What the sizes of a list are of: by the nearest name before or in it, else by how large they are."""
    first, last = pairs[0][0].start(), _last(pairs[-1])
    starts = {size.start() for size, _ in pairs}
    names = []
    for name in _RE["names"].finditer(text, max(0, first - _MAX_BEFORE_LIST), last):
        own = _RE["own"].match(text, name.end())
        if own is None or own.end() - 1 in starts:
            names.append(name)
    if names:
        nearest = min(names, key=lambda name: abs(first - name.end()))
        return "micro_batch" if nearest["xb"] else "seq_len"
    if len(pairs) < _MIN_PLAIN_PAIRS and _RE["measured"].search(text) is None:
        return None
    sizes = [_value(size) for size, _ in pairs]
    return "seq_len" if min(sizes) >= _MIN_LENGTH else "micro_batch" if max(sizes) <= _MAX_BATCH else None


def _beside(lines: Sequence[Line], words: Vocabulary) -> Iterator[Signal]:
    """The figures that stand in no list, each with the batch or the length that is nearest to it."""
    if next(candidates(_MEASURED, lines, words), None) is None:
        return
    for line in list(candidates(SIZED, lines, words))[:_MAX_MEASURED]:
        text = line.raw[:LONG]
        at = list(SIZED.finditer(text))
        for held in _RE["size"].finditer(text):
            if _RE["not_measured"].search(text, max(0, held.start() - 16), held.start()):
                continue
            found = _nearest(text, at, held.span()) if _is_measured(text, held.span()) else None
            if found is None:
                continue
            data = _size_of(found)
            shown = {"shown_bytes": round(float(held["n"]) * _GIB), "measured": True}
            yield Signal("worked-at", line.span(held.start() + 1), MappingProxyType({**data, **shown}))


def _is_measured(text: str, place: tuple[int, int]) -> bool:
    """Whether the clause of a size says that it was measured, or is one of a list of which that is said before."""
    joints = [found.span() for found in _RE["joint"].finditer(text)]
    start = max((end for _, end in joints if end <= place[0]), default=0)
    stop = min((begin for begin, _ in joints if begin >= place[1]), default=len(text))
    clause = text[start:stop]
    listed = len(clause.strip()) <= _LISTED_CHARACTERS and SIZED.search(clause) is not None
    return listed or _MEASURED.search(clause) is not None


_LISTED_CHARACTERS: Final = 32
"""Of a clause that holds a figure and its batch or length, and nothing else."""


def _nearest(text: str, sized: Sequence[re.Match[str]], place: tuple[int, int]) -> re.Match[str] | None:
    """The batch or length of a figure: the nearest of its clause, else the only one of its sentence."""

    def between(found: re.Match[str]) -> str:
        first, second = sorted((found.span(), place))
        return text[first[1] : second[0]]

    near = [found for found in sized if len(between(found)) <= _NEAR and _RE["joint"].search(between(found)) is None]
    batches = [found for found in sized if found["xb"]]
    if near and len(batches) == 1 and len(sized) > 1 and len(text) <= _LINE_OF_TABLE:
        return batches[0]  # "mbs 2, seq 4096 -> 31.4 GiB": one line for each batch
    if near:
        return min(near, key=lambda found: len(between(found)))
    alone = [found for found in sized if found["xb"] and _RE["end"].search(between(found)) is None]
    return alone[0] if len(alone) == 1 else None


_LINE_OF_TABLE: Final = 80
"""Characters of a line that gives one run's sizes and its figure, and nothing else."""
_MAX_MEASURED: Final = 8
"""Lines on which figures at a batch or a length are looked for."""
_NEAR: Final = 36
"""Characters between a figure and the batch or the length at which it was measured."""


def count_of(text: str) -> int:
    """``8,192`` and ``8k`` as a number."""
    plain = text.replace(",", "").lower()
    return int(plain[:-1]) * 1024 if plain.endswith("k") else int(plain)
