"""What a question compares: models, cards, methods, formats, or values of one setting.

The rows are those of ``asked.tsv``; :mod:`oomdoc.intake.asked` reads the rest of the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, product
from math import prod
from typing import Any, Final

from oomdoc.intake.layouts import layouts_in
from oomdoc.intake.numbers import is_near, lists_in, number_of
from oomdoc.intake.polarity import asks_on, doubt, negated
from oomdoc.intake.quantities.fields import is_likely, is_possible, listed, refuted, value_of
from oomdoc.intake.sieve import Expression
from oomdoc.intake.switches import (
    MAX_BEFORE,
    MAX_NAME,
    is_denied,
    sides_with_switches,
    switched,
    switched_off,
    value_of_row,
    weighed,
    with_and_without,
)
from oomdoc.intake.worded import ROWS, Alternative, Mention, cards_in, has_settings, models_in, worded
from oomkb.kept import compiled

_MAX_BETWEEN: Final = 32
"""Characters between two things that are compared."""
_MAX_SIDES: Final = 5
_MAX_LISTED: Final = 8
"""Numbers of a list that are compared."""
_MAX_AXES: Final = 3
"""Settings in each of which a question compares values."""
_MAX_COMBINED: Final = 6
"""Combinations of them that are answered one by one."""
_LISTED: Final = 3
"""Machines of different kinds from which a question compares them, whatever else it names."""
_EXCLUSIVE: Final = frozenset({"sharding", "attention", "optimizer", "tp", "serving.kv_dtype"})
"""Settings of which a run has one value."""
_MACHINES: Final = frozenset({"gpus", "nodes"})
"""What "or do we need 16?" counts."""
_LISTABLE: Final = frozenset({"method", "quant", "sharding", "objective"})
"""Settings in words of which a run has one: those that are listed are compared."""
_ASIDE: Final = compiled(r"[(（][^()（）]{0,80}[)）]")
_COMMA: Final = compiled(r"\s*[,，、/]\s*")
_COMMA_OF_MORE: Final = compiled(r"[\w \-]{0,16}[,，、/]\s*")
"""A comma in a list of which an item has further words: ``full AdamW, LoRA, QLoRA``."""
_OPTION: Final = 120
"""Characters of the last option of a list, and of an option that name it."""


_STAGES: Final = tuple(Alternative(f"ZeRO-{stage}", {"sharding": f"zero{stage}"}) for stage in (1, 2, 3))
"""What a question for the stage sets against each other, one or all of them named or not."""


def comparisons_in(text: str) -> tuple[tuple[Alternative, ...], ...]:
    """What a question sets against each other: options of a list, values of one field, or a setting on and off.

    In the order of the words, each in other fields: "rank 64 or 16, and ZeRO-2 or ZeRO-3?".
    """
    found: list[tuple[Alternative, ...]] = []
    seen: set[str] = set()
    for sides in _sides(text):
        fields = {name for side in sides for name in side.fields}
        if seen.isdisjoint(fields) and len(found) < _MAX_AXES:
            found.append(sides)
        seen |= fields
    while len(found) > 1 and prod(map(len, found)) > _MAX_COMBINED:
        found.pop()
    return tuple(found)


def _sides(text: str) -> Iterator[tuple[Alternative, ...]]:
    """Every comparison of a text, the plainest first.

    Values of a field are compared where words of choice or of change join them. Machines, and values of a setting of
    which a run has one (how its states are shared), exclude each other whatever stands between.
    """
    cards, lists = cards_in(text), _numbered(text)
    values = {**worded(text), **{field: list(chain(*found)) for field, found in lists.items()}}
    machines = _distinct(m[2] for m in sorted(cards, key=_place) if asks_on(text, m[1]) or not doubt(text, m[0], m[1]))
    many, options = _LISTED <= len(machines) <= _MAX_SIDES, _options(text)
    if many and not has_settings(options):
        yield machines  # a list of machines is what a question is about
    if options:
        yield options
        return
    if ROWS["which_stage"].search(text) is not None:
        yield _STAGES
    if layouts := layouts_in(text, cards):
        yield layouts
    weighs = ROWS["weighs"].search(text) is not None
    choice = [ROWS["between"], *([ROWS["together"]] if weighs else [])]
    changes = [*choice, ROWS["changes"]]
    of_things = changes if ROWS["goes"].search(text) else choice
    several = cards if len(_distinct(card for _, _, card in cards)) > 1 else []
    things = ((_with_others(models_in(text), values), of_things), (several, of_things))
    for mentions, words in things:
        yield from _of_choice(text, mentions, words, listed=True)
    if ROWS["than"].search(text) is not None and len(named := _distinct(m[2] for m in models_in(text))) == 2:
        yield named
    yield from _listed(text, lists, cards)
    for field, mentions in values.items():
        yield from _of_choice(text, _with_others(mentions, values), changes, listed=weighs or field in _LISTABLE)
    yield from _twice(text, values, [*choice, ROWS["together"]])
    if many:
        return
    if found := switched(text, values):
        yield found
    sides = (_apart(text, field, sorted(mentions, key=_place)) for field, mentions in values.items())
    yield from (found for found in (*sides, machines) if 1 < len(found) <= _MAX_SIDES)


def _of_choice(
    text: str, mentions: list[Mention], words: Sequence[Expression], *, listed: bool
) -> Iterator[tuple[Alternative, ...]]:
    found = _compared(text, sorted(mentions, key=_place), words, listed=listed)
    if 1 < len(found) <= _MAX_SIDES:
        yield sides_with_switches(text, found)


def _twice(
    text: str, values: Mapping[str, list[Mention]], words: Sequence[Expression]
) -> Iterator[tuple[Alternative, ...]]:
    """One value of a setting that is named twice with words of choice between: the second, or the first, has more."""
    for field in sorted(_LISTABLE & values.keys()):
        mentions = sorted(values[field], key=_place)
        if len(mentions) != 2 or mentions[0][2].fields != mentions[1][2].fields:
            continue
        between = text[mentions[0][1] : mentions[1][0]]
        if len(between) <= _MAX_BETWEEN and any(word.search(between) for word in words):
            sides = with_and_without(text, mentions)
            yield from [sides] if sides else []


def _listed(
    text: str, lists: Mapping[str, list[list[Mention]]], cards: Sequence[Mention]
) -> Iterator[tuple[Alternative, ...]]:
    """Lists of values of one number, of which a run has one."""
    for field, found in lists.items():
        if field == "capacity_gib" and cards:
            continue
        for mentions in found:
            sides = _each_in_its_clause(text, [m for m in mentions if not negated(text, m[0])])
            if 1 < len(sides) <= _MAX_LISTED:
                yield sides


def combined(axes: Sequence[tuple[Alternative, ...]]) -> tuple[Alternative, ...]:
    """Every combination of what a question sets against each other, in the order of its words."""
    if len(axes) < 2:
        return axes[0] if axes else ()
    found = []
    for parts in product(*axes):
        fields = {name: value for part in parts for name, value in part.fields.items()}
        found.append(Alternative(", ".join(part.name for part in parts), fields, parts=parts))
    return tuple(found)


def _place(mention: Mention) -> tuple[int, int]:
    return mention[:2]


def _with_others(mentions: list[Mention], values: Mapping[str, list[Mention]]) -> list[Mention]:
    """Values of one field, each with the value of another that stands with it: "LoRA (ZeRO-3) or QLoRA (DDP)"."""
    ordered = sorted(mentions, key=_place)
    for others in values.values():
        paired = sorted([*ordered, *others], key=_place) if others is not mentions else []
        if len(paired) != 2 * len(ordered) or any(
            (m in others) != (paired[n % 2] in others) for n, m in enumerate(paired)
        ):
            continue
        ordered = [_together(one, other) for one, other in zip(paired[::2], paired[1::2], strict=True)]
    return ordered


def _together(one: Mention, other: Mention) -> Mention:
    first, second = one[2].name, other[2].name
    name = first if second.lower() in first.lower() else f"{first} {second}"
    return one[0], max(one[1], other[1]), Alternative(name, {**one[2].fields, **other[2].fields})


def _apart(text: str, field: str, mentions: list[Mention]) -> tuple[Alternative, ...]:
    """Values of one field that stand apart: of a setting of which a run has one, or where the later is a what-if."""
    named = [m for m in mentions if not negated(text, m[0])]
    further = (m for m in named if m[2].fields != named[0][2].fields)
    if field in _EXCLUSIVE or any(_is_supposed(text, named[0], m) for m in further):
        return _each_in_its_clause(text, named)
    return ()


def _each_in_its_clause(text: str, mentions: Sequence[Mention]) -> tuple[Alternative, ...]:
    """Each value once, with what its clause switches where all are named once."""
    sides = _distinct(m[2] for m in mentions)
    return sides_with_switches(text, mentions) if 1 < len(sides) == len(mentions) else sides


def _is_supposed(text: str, first: Mention, later: Mention) -> bool:
    """Whether a later value is only asked about, beside a first one that is told: "bs 1 takes 61 GB. And bs 4?"."""
    before = text[max(0, later[0] - MAX_BEFORE) : later[0]]
    if ROWS["supposes"].search(before) or ROWS["supposed"].match(text, later[1]):
        return True
    targeted = "seq_len" in later[2].fields and ROWS["target"].search(text) is not None  # the answer is about it alone
    return asks_on(text, later[1]) and not asks_on(text, first[1]) and not targeted


def _options(text: str) -> tuple[Alternative, ...]:
    """Options of a marked list, each with the fields that its words set; what only others set, it does not have."""
    for row in ("option", "lettered"):
        marks = [mark.span() for mark in ROWS[row].finditer(text)]
        ends = [*(start for start, _ in marks[1:]), len(text)][: len(marks)]
        items = [text[end : min(until, end + _OPTION)] for (_, end), until in zip(marks, ends, strict=True)]
        if sum(ROWS["puts_question"].match(item) is not None for item in items) > 1:
            return ()  # a list of questions
        if len(sides := _of_items(items)) > 1:
            return sides
    return ()


def _of_items(items: Sequence[str]) -> tuple[Alternative, ...]:
    sides, closed = [], dict[str, Any]()
    for item in items:
        words = _OPTION_ENDS.split(item, maxsplit=1)[0].strip(" ,;，；:：")
        fields: dict[str, Any] = {"seq_len": int(value)} if (value := value_of(words, "length")) else {}
        numbers = (list(chain(*lists)) for lists in _numbered(words).values())
        for found in (models_in(words), *worded(words).values(), *numbers, cards_in(words)):
            fields |= found[-1][2].fields if found else {}
        closed |= {name: None for name in fields if name not in closed and name not in _OF_ALL}
        for name, pattern in ROWS.group("setting").items():
            if (match := pattern.search(words)) is not None:
                closed[name.split(":")[0]] = value_of_row(name, on=False)
                fields[name.split(":")[0]] = value_of_row(name, on=not negated(words, match.start()))
        if fields:
            named = re.split(r"[,;，；。]", words)[0]
            named = named if len(named) <= MAX_NAME else named[:MAX_NAME].rpartition(" ")[0] or named[:MAX_NAME]
            sides.append(Alternative(_TRAILING.sub("", named).strip(), fields))
    one = {"gpus": 1} if any("gpus" in side.fields for side in sides) else {}  # a card that nobody counts
    counted = [{**(one if "gpu" in side.fields else {}), **side.fields} for side in sides]
    distinct = _distinct(
        Alternative(side.name, {**closed, **fields}) for side, fields in zip(sides, counted, strict=True)
    )
    alike = bool(distinct) and set.intersection(*(set(side.fields) for side in distinct))
    return distinct if alike and 1 < len(distinct) <= _MAX_SIDES else ()


_TRAILING: Final = compiled(r"(?:,|(?: (?:and|or|vs\.?|versus|with|in|on|of|to|for|at|the|an?))+|和|与|或)\s*\Z")
_OPTION_ENDS: Final = compiled(r"[?？。\n]|\.\s")
_OF_ALL: Final = frozenset({"model", "gpu", "gpus", "seq_len", "micro_batch", "method", "objective", "nodes"})
"""Fields of every run: an option that leaves one out has that of the words around the list."""


def _distinct(sides: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """Each difference once, as it is named most fully: what is named again with less ("the H100") is the same."""
    found: list[Alternative] = []
    for side in sides:
        if any(side.fields.items() <= other.fields.items() for other in found):
            continue
        fuller = (n for n, other in enumerate(found) if other.fields.items() < side.fields.items())
        at = next(fuller, None)
        if at is not None and ("gpus" in found[at].fields or side.fields.get("gpus", 1) == 1):
            found[at] = side
        else:
            found.append(side)
    return tuple(found)


def _numbered(text: str, *, turn: bool = False) -> dict[str, list[list[Mention]]]:
    """By field: the numbers of a setting, those of one list together ("bs 1, 2 or 4", "4 or 8 GPUs")."""
    return {field: [[*mentions] for mentions in lists] for field, lists in _numbers(text, turn=turn).items()}


@lru_cache(maxsize=8)
def _numbers(text: str, *, turn: bool) -> dict[str, list[list[Mention]]]:
    by_field: dict[str, list[list[Mention]]] = {}
    others = [(start, end) for start, end, _ in cards_in(text)]
    others += [found.span() for found in ROWS["global_batch"].finditer(text)]
    sized = [one for one in listed(text) if not any(start <= one.start < end for start, end in others)]
    lists = lists_in(text, ROWS, others, sized=sized, refuted=partial(refuted, text), turn=turn)
    lists = [kept for found in lists if (kept := tuple(one for one in found if turn or is_possible(one)))]
    named = {one.start for values in lists for one in values}
    for values in lists:
        field = values[0].field
        mentions = [_number(text, field, one.value, one.start, one.end) for one in values]
        if len(mentions) == 1 and (other := ROWS["other_number"].match(text, mentions[0][1])) is not None:
            place = next(name for name in ("n", "m", "o", "p") if other[name])
            apart = other.start(place) in named or any(start <= other.start(place) < end for start, end in others)
            apart = apart or (place == "p" and field not in _MACHINES)
            if not apart and is_near(number_of(text[slice(*mentions[0][:2])]), number_of(other[place])):
                mentions.append(_number(text, field, number_of(other[place]), *other.span(place)))
        if field == "capacity_gib" and not all(is_likely(text, field, *m[:2]) for m in mentions):
            continue  # what is used: "15 GB instead of 10"
        by_field.setdefault(field, []).append(mentions)
    return by_field


def _number(text: str, field: str, value: float, start: int, end: int) -> Mention:
    written = text[start:end]
    named = f"r={written}" if field == "lora.r" else f"{field.rpartition('.')[2]} {written}"
    return start, end, Alternative(named, {field: value}, written)


def settings_in(text: str, sides: Sequence[Alternative]) -> dict[str, Any]:
    """Settings that the words name with one value, beyond what is compared: ``bs2``, ``optimizer offloaded to CPU``."""
    compared = {field for side in sides for field in side.fields}
    out = {}
    for field, mentions in values_in(text).items():
        so = (m for m in mentions if not negated(text, m[0]) and not is_denied(text, m[1]))
        said = [m[2].fields[field] for m in so if weighed(text, *m[:2]) is None]
        if field not in compared and len(said) == len(mentions) == said.count(said[0] if said else None):
            out[field] = said[0]
    return {**switched_off(text, {*compared, *out}), **out}


def values_in(text: str, *, turn: bool = False) -> dict[str, list[Mention]]:
    """By field: every value that the words name, whether they set, deny or only speak of; ``turn`` as for lists."""
    numbers = {field: list(chain(*found)) for field, found in _numbered(text, turn=turn).items()}
    values, switched = {**worded(text), **numbers}, dict[str, list[Mention]]()
    for name, pattern in ROWS.group("setting").items():
        side = Alternative(name, {name.split(":")[0]: value_of_row(name, on=True)})
        if found := [(*m.span(), side) for m in pattern.finditer(text)]:
            switched.setdefault(name.split(":")[0], []).extend(found)  # what is offloaded is more than one
    return {**switched, **values}


def _compared(text: str, mentions: list[Mention], choice: Sequence[Expression], *, listed: bool) -> tuple[Mention, ...]:
    """The first run of different mentions that words of choice join; commas may part the earlier ones.

    :param listed: whether what joins a list is enough, as of machines, of which a run has one.
    """
    chain: list[Mention] = []
    end, joined = 0, False
    for one in mentions:
        start, stop, _ = one
        between = _ASIDE.sub("", text[end:start])
        near = bool(chain) and 0 < len(between) <= _MAX_BETWEEN and not re.search(r"[.?!。？！\n]\s", between)
        comma = near and (_COMMA_OF_MORE if listed else _COMMA).fullmatch(between) is not None
        plain = near and listed and ROWS["plain_join"].match(between) is not None
        chosen = near and (plain or any(words.search(between) for words in choice))
        if chosen or comma:
            if all(one[2].fields != other[2].fields for other in chain):
                chain.append(one)
            joined = joined or chosen
        elif joined and len(chain) > 1:
            break
        else:
            chain, joined = [one], False
        end = stop
    return tuple(chain) if joined and len(chain) > 1 else ()
