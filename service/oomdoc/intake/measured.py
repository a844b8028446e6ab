"""Figures that a person measured at several sizes of a run: ``bs 1: 26.4 GiB, bs 2: 35.1 GiB``, ``40 users: 31 GB``.

What each number is of says :mod:`oomdoc.intake.quantities`; figures and sizes that follow one another in one order are
pairs, and what is left of the sizes is what is asked about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from oomdoc.evidence import Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.quantities import Quantity, quantities_in
from oomdoc.intake.quantities.fields import MIN_CHANCE, OF_TOKENS, SURE, around, chance
from oomdoc.intake.sieve import Vocabulary, candidates

_RE: Final = patterns(__file__)
SIZED: Final = _RE["sized"]
_DIGIT: Final = _RE["digit"]
_GIB: Final = 1 << 30
LONG: Final = 2_000
"""Characters of a line that are looked at."""
_MAX_LINES: Final = 40
_MAX_BETWEEN: Final = 64
"""Characters between a size and its figure."""
_SIZES: Final = {
    "micro_batch": "micro_batch",
    "batch": "micro_batch",
    "length": "seq_len",
    "request_tokens": "seq_len",
    "prompt_tokens": "seq_len",
    "users": "users",
    "step": "step",
}
"""Roles of what a run is varied in, and the field of each."""
_OF_A_RUN: Final = frozenset({"micro_batch", "seq_len"})
"""Fields that the memory model prices."""
_FIGURES: Final = frozenset({"used_memory"})
_PARTS: Final = frozenset({"used_memory", "other_memory"})
_MAX_RATIO: Final = 32
"""Between a size that is asked about without a name and one that was measured."""
_MAX_ASKED: Final = {"micro_batch": 512}


class _Pair(NamedTuple):
    size: Quantity
    figure: Quantity


def measured(lines: Sequence[Line], words: Vocabulary) -> Iterator[Signal]:
    """``worked-at`` for each batch or length, and ``held-at`` for each number of users or steps, at which somebody
    measured what a run held; ``size-beside``: further sizes of that kind, and of memory; ``pool-share``: which share of
    a cache so many users take.
    """
    rows = [line for line, _ in zip(lines, range(_MAX_LINES), strict=False)]
    if next(candidates(_DIGIT, rows, words), None) is None:
        return
    text = "\n".join(line.raw[:LONG] for line in rows)
    numbers = quantities_in(text)
    yield from _shares(rows, text, numbers)
    yield from _divided(rows, text, numbers)
    listed = [(field, _pairs(text, numbers, field)) for field in dict.fromkeys(_SIZES.values())]
    field, pairs = max(listed, key=lambda one: _weight(numbers, *one))
    if not pairs:
        return
    name = "worked-at" if field in _OF_A_RUN else "held-at"
    for size, figure in pairs:
        shown = {"shown_bytes": round(figure.value * _GIB), "measured": True}
        if _RE["host"].search(text, max(0, pairs[0].figure.start - _MAX_BETWEEN), figure.end):
            shown["host"] = True
        yield _signal(name, rows, text, figure, {"field": field, "value": round(size.value), **shown})
    paired = {one.start for pair in pairs for one in pair}
    last = max(paired)
    for one in numbers:
        if one.start in paired:
            continue
        near = one.value <= _MAX_RATIO * pairs[-1].size.value and one.probability < _ASKED_UNSURE
        asked = one.start > last and _is_size(one, field, goes_on=near)
        if (_SIZES.get(one.role) == field or asked) and 1 < one.value <= _MAX_ASKED.get(field, one.value):
            yield _signal("size-beside", rows, text, one, {"field": field, "value": round(one.value)})
        elif one.role == "card_memory" or (one.role in _FIGURES and one.value > pairs[-1].figure.value):
            yield _signal("size-beside", rows, text, one, {"size_bytes": round(one.value * _GIB)})
        elif one.role in _PARTS and _RE["fixed"].search(" ".join(around(text, one))):
            yield _signal("size-beside", rows, text, one, {"fixed_bytes": round(one.value * _GIB)})


def _weight(numbers: Sequence[Quantity], field: str, pairs: Sequence[_Pair]) -> tuple[int, int, int]:
    """How many figures a field explains, whether the first is at a size of it, and how many further sizes there are."""
    of_field = sum(_SIZES.get(q.role) == field for q in numbers)
    sure = sum(_SIZES.get(pair.size.role) == field for pair in pairs)
    return len(pairs), int(bool(pairs) and _SIZES.get(pairs[0].size.role) == field), of_field - sure if pairs else 0


def _signal(name: str, rows: Sequence[Line], text: str, number: Quantity, data: dict[str, object]) -> Signal:
    """A signal at the place of a number in the joined lines."""
    row, column = rows[text.count("\n", 0, number.start)], number.start - text.rfind("\n", 0, number.start)
    return Signal(name, row.span(column), MappingProxyType(data))


def _pairs(text: str, numbers: Sequence[Quantity], field: str) -> list[_Pair]:
    """The longest list of figures, each with the nearest size of a field on one side of it; each size once."""
    card = max((q.value for q in numbers if q.role == "card_memory"), default=0.0)
    best: list[_Pair] = []
    for step in (-1, 1):  # the size stands before its figure, or behind it
        found: list[_Pair] = []
        for at, figure in enumerate(numbers):
            if not _is_figure(figure, card, goes_on=bool(found)) or _RE["fixed"].search(around(text, figure)[0]):
                continue
            near = list(_numbers_beside(text, numbers, at, step))
            size = next((q for q in near if _chance_of(q, field) >= MIN_CHANCE), None)
            size = size or next((q for q in near if _is_size(q, field, goes_on=bool(found))), None)
            if size is not None and size.value >= 1 and all(size.start != pair.size.start for pair in found):
                found.append(_Pair(size, figure))
        best = found if len(found) > len(best) else best
    if len({pair.size.value for pair in best}) < len(best):
        return []
    if len(best) == 1 and (field not in _OF_A_RUN or _RE["pause"].search(_between(text, *best[0]))):
        return []  # one figure is that of the size in its own clause
    return best


def _chance_of(number: Quantity, field: str) -> float:
    """The probability that a number is a size of a field."""
    return chance(number, *(role for role, of in _SIZES.items() if of == field))


def _between(text: str, one: Quantity, other: Quantity) -> str:
    first, second = sorted((one, other), key=lambda q: q.start)
    return text[first.end : second.start]


def _numbers_beside(text: str, numbers: Sequence[Quantity], at: int, step: int) -> Iterator[Quantity]:
    """The numbers on one side of a figure, the nearest first, as far as no other figure or sentence stands between."""
    figure, other = numbers[at], at + step
    while 0 <= other < len(numbers):
        one = numbers[other]
        between = _between(text, one, figure)
        if len(between) > _MAX_BETWEEN or _RE["apart"].search(between) or _RE["fixed"].search(between):
            return
        if one.role in _FIGURES and not one.written.isdigit():
            return
        yield one
        other += step


def _is_size(number: Quantity, field: str, *, goes_on: bool) -> bool:
    """Whether a number is a size of a field; in a list that goes on, a bare one that is not surely something else."""
    if _SIZES.get(number.role) == field:
        return True
    bare = number.written.replace(",", "").isdigit()
    return goes_on and bare and (field != "seq_len" or number.value >= _MIN_TOKENS)


def _is_figure(number: Quantity, card: float, *, goes_on: bool) -> bool:
    """Whether a number is what a run held; in a list that goes on, a bare one too.

    :param card: GiB of the largest card: a smaller size of a card beside a size of the run is what it held.
    """
    if number.role in _FIGURES:
        return number.probability >= SURE
    if goes_on and number.written.replace(".", "").isdigit() and number.probability < _UNSURE:
        return not card or number.value < card
    return number.role == "card_memory" and number.value < card


_UNSURE: Final = 0.75
"""Probability below which a role gives way to the order of a list."""
_ASKED_UNSURE: Final = 0.8
"""The same of a bare number behind a list."""


def _shares(rows: Sequence[Line], text: str, numbers: Sequence[Quantity]) -> Iterator[Signal]:
    """``pool-share``: a share of a cache beside the users who take it; where both have a length, that of what is asked
    is counted too.
    """
    users = [q for q in numbers if q.role == "users" and q.value >= 1]
    shares = [q for q in numbers if q.role == "percent" and 0 < q.value < 1]
    if len(shares) > 1:
        shares = [q for q in shares if _RE["of_pool"].search(" ".join(around(text, q)))]
    if len(shares) != 1 or not users or _RE["pool"].search(text) is None:
        return
    near = min(
        users,
        key=lambda q: (_RE["apart"].search(_between(text, q, shares[0])) is not None, abs(q.start - shares[0].start)),
    )
    data: dict[str, object] = {"users": round(near.value), "share": shares[0].value}
    pool = next((q for q in numbers if q.role == "cache_tokens" and q.probability >= SURE), None)
    if pool is not None:
        data["tokens"] = round(pool.value)
    further = [q for q in users if q.value != near.value]
    if further:
        now, then = (_length_beside(numbers, q) for q in (near, further[-1]))
        data |= {"asked": round(further[-1].value), "longer": then / now if now and then else 1.0}
    yield _signal("pool-share", rows, text, shares[0], data)


def _length_beside(numbers: Sequence[Quantity], users: Quantity) -> float | None:
    """The tokens that stand right behind a number of users."""
    behind = (q for q in numbers if 0 < q.start - users.end <= _MAX_BESIDE)
    return next((q.value for q in behind if q.value >= _MIN_TOKENS and chance(q, *OF_TOKENS) >= MIN_CHANCE), None)


_MAX_BESIDE: Final = 32
"""Characters between users and the length of each."""
_MIN_TOKENS: Final = 64


def _divided(rows: Sequence[Line], text: str, numbers: Sequence[Quantity]) -> Iterator[Signal]:
    """``pool-of``: a cache's tokens beside those of one request; ``file-of``: a file's size beside its layers."""
    counted = [q for q in numbers if q.probability >= SURE and q.value > 0]
    sure = {role: [q for q in counted if q.role == role] for role in _DIVIDED}
    pool, layers, size = (sure[role] for role in ("cache_tokens", "layers", "file_size"))
    each = sure["request_tokens"] or sure["prompt_tokens"] or sure["length"]
    if len(pool) == 1 and len(each) == 1 and 1 <= each[0].value < pool[0].value:
        users = [round(q.value) for q in numbers if q.role == "users" and q.probability >= SURE]
        data: dict[str, object] = {
            "tokens": round(pool[0].value),
            "each": round(each[0].value),
            **({"asked": users[0]} if users else {}),
        }
        yield _signal("pool-of", rows, text, pool[0], data)
    if len(size) == len(layers) == 1 and layers[0].value >= 1:
        whole: dict[str, object] = {"size_bytes": round(size[0].value * _GIB), "layers": round(layers[0].value)}
        yield _signal("file-of", rows, text, size[0], whole)


_DIVIDED: Final = ("cache_tokens", "request_tokens", "prompt_tokens", "length", "layers", "file_size")


def count_of(text: str) -> int:
    """``8,192`` and ``8k`` as a number."""
    plain = text.replace(",", "").lower()
    return int(plain[:-1]) * 1024 if plain.endswith("k") else int(plain)
