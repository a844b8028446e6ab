"""Figures that a person measured at several sizes of a run: ``bs 1: 26.4 GiB, bs 2: 35.1 GiB``, ``40 users: 31 GB``.

What each number is of says :mod:`oomdoc.intake.quantities`; figures and sizes that follow one another in one order are
pairs, and what is left of the sizes is what is asked about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

from oomdoc.evidence import Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.quantities import Quantity, quantities_in
from oomdoc.intake.quantities.fields import MIN_CHANCE, OF_TOKENS, SURE, around, chance
from oomdoc.intake.quantities.numbered import NumberedText
from oomdoc.intake.sieve import Vocabulary, candidates

_RE: Final = patterns(__file__)
SIZED: Final = _RE["sized"]
_GIB: Final = 1 << 30
LONG: Final = 2_000
"""Characters of a line that are looked at."""
_MAX_LINES: Final = 40
_MAX_BETWEEN: Final = 64
"""Characters between a size and its figure."""
_MAX_NUMBERS_BETWEEN: Final = 6
"""Numbers beside a figure among which its size is looked for."""
_SIZES: Final = {
    "micro_batch": "micro_batch",
    "batch": "micro_batch",
    "length": "seq_len",
    "request_tokens": "seq_len",
    "prompt_tokens": "seq_len",
    "users": "users",
    "step": "step",
    "gpu_count": "cards",
    "gpus_per_node": "cards",
}
"""Roles of what a run is varied in, and the field of each."""
_OF_A_RUN: Final = frozenset({"micro_batch", "seq_len"})
"""Fields that the memory model prices."""
_WITH_TOKENS: Final = frozenset({"micro_batch", "users"})
"""Fields of things that have a length each."""
_FIGURES: Final = frozenset({"used_memory"})
_PARTS: Final = frozenset({"used_memory", "other_memory"})
_ALL_BUT_SURE: Final = 0.95
"""Probability from which a size is a card's, and no figure of a run on a larger one."""
_MAX_RATIO: Final = 32
"""Between a size that is asked about without a name and one that was measured."""
_MAX_SIZE: Final = {"micro_batch": 512}
"""The largest size of a field that is one."""


class _Pair(NamedTuple):
    size: Quantity
    figure: Quantity


def measured(lines: Sequence[Line], words: Vocabulary) -> Iterator[Signal]:
    """What somebody measured of a run at several sizes, and which further sizes are asked about.

    ``worked-at`` for each batch or length, ``held-at`` for each number of users, steps or cards; ``size-beside``:
    further sizes of that kind, and of memory; ``pool-share``: which share of a cache so many users take; ``pool-of``:
    what is divided by what.
    """
    rows = [line for line, _ in zip(lines, range(_MAX_LINES), strict=False)]
    if next(candidates(_RE["digit"], rows, words), None) is None:
        return
    text = "\n".join(line.raw[:LONG] for line in rows)
    products = [found.span() for found in _RE["product"].finditer(text)]
    numbers = [q for q in quantities_in(text) if not any(start <= q.start < end for start, end in products)]
    seen = NumberedText(rows, text, numbers)
    yield from _shares(seen)
    yield from _divided(seen)
    yield from _samples(seen)
    listed = [(field, _pairs(seen, field)) for field in dict.fromkeys(_SIZES.values())]
    field, pairs = max(listed, key=lambda one: _weight(seen.numbers, *one))
    if pairs:
        yield from _line(seen, field, pairs)


def _line(seen: NumberedText, field: str, pairs: Sequence[_Pair]) -> Iterator[Signal]:
    """The figures of a list, and what stands beside them."""
    name = "worked-at" if field in _OF_A_RUN else "held-at"
    primary = [pair.size for pair in pairs]
    for size, figure in pairs:
        yield seen.signal(
            name,
            figure,
            field=field,
            value=round(size.value),
            shown_bytes=_bytes(figure),
            measured=True,
            **_tokens(seen, field, size, primary),
        )
    paired = {one.start for one in chain.from_iterable(pairs)}
    yield from _beside(seen, field, pairs[-1], paired)


def _tokens(seen: NumberedText, field: str, size: Quantity, primary: Collection[Quantity]) -> dict[str, int]:
    """The length that each of so many users or samples has, where it is said beside their number."""
    if field not in _WITH_TOKENS:
        return {}
    others = [one.start for one in primary if one is not size]
    near = [
        q
        for q in seen.numbers
        if chance(q, *OF_TOKENS) >= SURE
        and q.value >= _MIN_TOKENS
        and q is not size
        and len(between := seen.between(q, size)) <= _MAX_BESIDE
        and not _RE["apart"].search(between)
        and not any(min(q.start, size.start) < start < max(q.start, size.start) for start in others)
    ]
    nearest = min(near, key=lambda q: (q.start < size.start, abs(q.start - size.start)), default=None)
    return {"tokens": round(nearest.value)} if nearest is not None else {}


def _beside(seen: NumberedText, field: str, end: _Pair, paired: Collection[int]) -> Iterator[Signal]:
    """``size-beside``: what is asked about behind a list of figures, and sizes of memory."""
    last = max(paired)
    asked = [q for at, q in enumerate(seen.numbers) if q.start not in paired and _is_asked(seen, field, end, at, last)]
    for at, one in enumerate(seen.numbers):
        if one.start in paired:
            continue
        if one in asked:
            yield seen.signal(
                "size-beside", one, field=field, value=round(one.value), **_tokens(seen, field, one, asked)
            )
        elif one.role == "card_memory" or (one.role in _FIGURES and one.value > end.figure.value):
            after = {"after": True} if one.role == "card_memory" and one.start > last else {}
            yield seen.signal("size-beside", one, size_bytes=_bytes(one), **after)
        elif one.role in _PARTS and seen.says(_RE["fixed"], at):
            yield seen.signal("size-beside", one, fixed_bytes=_bytes(one))


def _is_asked(seen: NumberedText, field: str, end: _Pair, at: int, last: int) -> bool:
    """Whether a number is a further size of the field: by its role, or a bare one behind the list."""
    one = seen.numbers[at]
    elsewhere = any(
        q.value == one.value and _SIZES.get(q.role) != field and q.probability >= _SURELY for q in seen.numbers
    )
    of_field = _SIZES.get(one.role) == field and one.probability >= (_ASKED_UNSURE if elsewhere else MIN_CHANCE)
    if field == "cards":
        return of_field and one.start > last
    unnamed = one.probability < SURE or (one.role in _UNNAMED and one.probability < _ASKED_UNSURE)
    near = unnamed and not elsewhere and one.value <= _MAX_RATIO * end.size.value
    return (of_field or (near and one.start > last and _is_size(one, field, goes_on=True))) and (
        1 < one.value <= _MAX_SIZE.get(field, one.value)
    )


def _weight(numbers: Sequence[Quantity], field: str, pairs: Sequence[_Pair]) -> tuple[int, int, int]:
    """How many figures a field explains, whether the first is at a size of it, and how many further sizes there are."""
    of_field = sum(_SIZES.get(q.role) == field for q in numbers)
    sure = sum(_SIZES.get(pair.size.role) == field for pair in pairs)
    return len(pairs), int(bool(pairs) and _SIZES.get(pairs[0].size.role) == field), of_field - sure if pairs else 0


def _pairs(seen: NumberedText, field: str) -> list[_Pair]:
    """The longest list of figures, each with the nearest size of a field on one side of it; each size once.

    Figures rise with the size; per card they fall with the number of cards that share a run.
    """
    if field == "cards" and _RE["shared"].search(seen.text) is None:
        return []
    numbers = seen.numbers
    card = max((q.value for q in numbers if q.role == "card_memory" and q.probability >= SURE), default=0.0)
    roles = [role for role, of in _SIZES.items() if of == field]
    best: list[_Pair] = []
    for step in (-1, 1):  # the size stands before its figure, or behind it
        found: list[_Pair] = []
        for at, figure in enumerate(numbers):
            if not _is_figure(figure, card, goes_on=bool(found)) or seen.says(_RE["fixed"], at) or _is_limit(seen, at):
                continue
            near = list(_numbers_beside(seen, at, step))
            size = next((q for q in near if chance(q, *roles) >= MIN_CHANCE), None)
            size = size or next((q for q in near if _is_size(q, field, goes_on=bool(found))), None)
            if (
                size is not None
                and 1 <= size.value <= _MAX_SIZE.get(field, size.value)
                and all(size.start != pair.size.start for pair in found)
            ):
                found.append(_Pair(size, figure))
        if len(found) > len(best) and _is_ordered(found, falls=field == "cards"):
            best = found
    if len(best) == 1 and not _stands_alone(seen, field, best[0]):
        return []
    return best


def _is_ordered(pairs: Sequence[_Pair], *, falls: bool) -> bool:
    """Whether no two figures are at one size, and they rise (or fall) from size to size."""
    ordered = sorted(pairs, key=lambda pair: pair.size.value)
    steps = [(b.size.value - a.size.value, b.figure.value - a.figure.value) for a, b in pairwise(ordered)]
    return all(size > 0 and (figure < 0 if falls else figure > 0) for size, figure in steps)


def _stands_alone(seen: NumberedText, field: str, pair: _Pair) -> bool:
    """Whether one figure is that of its size: in its own clause, or where neither can be another's."""
    if field == "cards":
        return any(
            q.role == "gpu_count" and q.value != pair.size.value and q.start > pair.size.end for q in seen.numbers
        )
    if field not in _OF_A_RUN:
        return False
    if not _RE["pause"].search(seen.between(*pair)):
        return True
    figures = [q for at, q in enumerate(seen.numbers) if q.role in _FIGURES and not _is_limit(seen, at)]
    sizes = [q for q in seen.numbers if _SIZES.get(q.role) == field]
    fixed = any(q.role in _PARTS and seen.says(_RE["fixed"], at) for at, q in enumerate(seen.numbers))
    return fixed and figures == [pair.figure] and sizes[:1] == [pair.size]


def _is_limit(seen: NumberedText, at: int) -> bool:
    """Whether a number is a size that may be used at most."""
    return seen.numbers[at].role == "memory_limit" or seen.says(_RE["limit"], at)


def _bytes(size: Quantity) -> int:
    return round(size.value * _GIB)


def _numbers_beside(seen: NumberedText, at: int, step: int) -> Iterator[Quantity]:
    """The numbers on one side of a figure, the nearest first, as far as no other figure or sentence stands between."""
    figure = seen.numbers[at]
    for distance in range(1, _MAX_NUMBERS_BETWEEN + 1):
        other = at + distance * step
        if not 0 <= other < len(seen.numbers):
            return
        one = seen.numbers[other]
        between = seen.between(one, figure)
        if len(between) > _MAX_BETWEEN or _RE["apart"].search(between) or _RE["fixed"].search(between):
            return
        if one.role in _FIGURES and not one.written.isdigit():
            return
        yield one


def _is_size(number: Quantity, field: str, *, goes_on: bool) -> bool:
    """Whether a number is a size of a field; in a list that goes on, a bare one that is not surely something else."""
    if _SIZES.get(number.role) == field:
        return True
    bare = number.written.replace(",", "").isdigit() and number.probability < _SURELY and _may_be_either(number)
    return goes_on and bare and (field != "seq_len" or number.value >= _MIN_TOKENS)


def _is_figure(number: Quantity, card: float, *, goes_on: bool) -> bool:
    """Whether a number is what a run held; in a list that goes on, a bare one too.

    :param card: GiB of the largest card: a smaller size of a card beside a size of the run is what it held.
    """
    if number.role in _FIGURES:
        return number.probability >= SURE
    if goes_on and number.written.replace(".", "").isdigit() and number.probability < _UNSURE:
        return _may_be_either(number) and (not card or number.value < card)
    return number.role == "card_memory" and number.value < card and number.probability < _ALL_BUT_SURE


def _may_be_either(number: Quantity) -> bool:
    """Whether a number may be a size or a figure of a list: not one that is likelier than not of another setting."""
    listed = number.role in _UNNAMED or number.role in _SIZES or number.role in _MEMORY
    return listed or number.probability < _MAYBE


_MAYBE: Final = 0.5
_MEMORY: Final = frozenset({"used_memory", "other_memory", "card_memory", "free_memory", "memory_limit"})


def _samples(seen: NumberedText) -> Iterator[Signal]:
    """``samples-counted``: how many samples a data set has, the fewest that are named: of what is evaluated."""
    counted = [q for at, q in enumerate(seen.numbers) if q.role == "count" and _RE["samples"].match(seen.words(at)[1])]
    found = min((q for q in counted if q.probability >= SURE and q.value > 1), key=lambda q: q.value, default=None)
    if found is not None:
        yield seen.signal("samples-counted", found, count=round(found.value))


_SURELY: Final = 0.95
"""Probability from which a number is surely of its role."""
_UNSURE: Final = 0.75
"""Probability below which a role gives way to the order of a list."""
_ASKED_UNSURE: Final = 0.8
"""The same of a bare number behind a list."""
_UNNAMED: Final = frozenset({"other", "count", "none", "users", "batch"})
"""Roles of numbers that no setting has, or of things that are counted without a name (``what would 14 take?``)."""


def _shares(seen: NumberedText) -> Iterator[Signal]:
    """``pool-share``: a share of a cache beside the users who take it; where both have a length, that of what is asked
    is counted too.
    """
    text, numbers = seen.text, seen.numbers
    users = [q for q in numbers if q.role == "users" and q.value >= 1]
    shares = [q for q in numbers if q.role == "percent" and 0 < q.value < 1]
    if len(shares) > 1:
        shares = [q for q in shares if _RE["of_pool"].search(" ".join(around(text, q)))]
    if len(shares) != 1 or not users or _RE["pool"].search(text) is None:
        return
    near = min(
        users,
        key=lambda q: (_RE["apart"].search(seen.between(q, shares[0])) is not None, abs(q.start - shares[0].start)),
    )
    data: dict[str, object] = {"users": round(near.value), "share": shares[0].value}
    pool = next((q for q in numbers if q.role == "cache_tokens" and q.probability >= SURE), None)
    if pool is not None:
        data["tokens"] = round(pool.value)
    now = _length_beside(numbers, near)
    further = [(round(q.value), _length_beside(numbers, q)) for q in users if q.value != near.value]
    asked = tuple((count, then / now if now and then else 1.0) for count, then in further)
    yield seen.signal("pool-share", shares[0], **data, asked=asked)


def _length_beside(numbers: Sequence[Quantity], users: Quantity) -> float | None:
    """The tokens that stand right behind a number of users."""
    behind = (q for q in numbers if 0 < q.start - users.end <= _MAX_BESIDE)
    return next((q.value for q in behind if q.value >= _MIN_TOKENS and chance(q, *OF_TOKENS) >= MIN_CHANCE), None)


_MAX_BESIDE: Final = 32
"""Characters between users and the length of each."""
_MIN_TOKENS: Final = 64


def _divided(seen: NumberedText) -> Iterator[Signal]:
    """``pool-of``: a cache's tokens beside those of one request."""
    numbers = seen.numbers
    counted = [q for q in numbers if q.probability >= SURE and q.value > 0]
    sure = {role: [q for q in counted if q.role == role] for role in _DIVIDED}
    pool = sure["cache_tokens"]
    each = sure["request_tokens"] or sure["prompt_tokens"] or sure["length"]
    if len(pool) == 1 and len(each) == 1 and 1 <= each[0].value < pool[0].value:
        # A ratio counts nobody: ``Maximum concurrency ...: 3.74x``.
        users = [int(q.value) for q in numbers if q.role == "users" and q.probability >= SURE and q.value.is_integer()]
        data: dict[str, object] = {
            "tokens": round(pool[0].value),
            "each": round(each[0].value),
            **({"asked": users[0]} if users else {}),
            **({"pool_bytes": _bytes(sure["cache_memory"][0])} if len(sure["cache_memory"]) == 1 else {}),
        }
        yield seen.signal("pool-of", pool[0], **data)


_DIVIDED: Final = ("cache_tokens", "cache_memory", "request_tokens", "prompt_tokens", "length")
