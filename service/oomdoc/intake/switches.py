"""Settings that are on or off: in the run that a question is about, in one of what it compares, or asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, Final

from oomdoc.intake.polarity import asks_on, denied, is_need_asked, negated
from oomdoc.intake.worded import ROWS, Alternative, Mention
from oomkb.kept import compiled

MAX_BEFORE: Final = 64
"""Characters before a setting in which words ask for it."""
_ASKED: Final = compiled("[?？]")
_CLAUSE_ENDS: Final = compiled(r"[?？。\n:：,，;；]|\.\s")
_CHOICE: Final = compiled(r"[,，;；]?\s*(?:\b(?:or|vs\.?|versus|and|against)\b|还是|或者?|和|与|跟|对比)")
_BARE: Final = {"offload": compiled(r"offload(?:ing|ed)?|卸载"), "grad_ckpt": compiled(r"\bcheckpointing\b")}
"""Words that name a setting where another clause has switched it on."""
_WITHOUT_IT: Final = compiled(
    r"\b(?:without|w/o)(?: it| that| them)?(?:\s*\Z| (?:for|on|to|at|when|if)\b)|不(?:开|用)\s*\Z"
)
MAX_NAME: Final = 48
"""Characters of a clause that name what is compared."""


def sides_with_switches(text: str, mentions: Sequence[Mention]) -> tuple[Alternative, ...]:
    """What is compared, each with the settings that its own clause switches on or off where another's does otherwise.

    "ZeRO-2 with the optimizer offloaded or ZeRO-3 without offload": a setting that only one clause names is one of the
    run, as its words may hold for both; but what offloads full training is not needed for adapters.
    """
    clauses = list(_clauses(text, mentions))
    on = [[row for row, _ in _switched_on(text, *clause)] for clause in clauses]
    rows = {row.split(":")[0]: row for row in chain(*on)}
    switches = [
        {field: row in here for field, row in rows.items() if row in here or _is_off(text, *clause, field)}
        for clause, here in zip(clauses, on, strict=True)
    ]
    methods = [one.fields.get("method") for _, _, one in mentions]
    if any(one.get("offload") and method == "full" for one, method in zip(switches, methods, strict=True)):
        for switch, method in zip(switches, methods, strict=True):
            if method in _ADAPTERS:
                switch.setdefault("offload", False)
    apart = [n for n in rows if all(n in one for one in switches) and len({one[n] for one in switches}) > 1]
    if not apart:
        return tuple(one for _, _, one in mentions)
    sides = []
    for (start, end), switch, (_, _, one) in zip(clauses, switches, mentions, strict=True):
        named = text[start:end].strip(" ,，、")
        fields = {**one.fields, **{field: value_of_row(rows[field], on=switch[field]) for field in apart}}
        sides.append(Alternative(named, fields) if len(named) <= MAX_NAME else replace(one, fields=fields))
    return tuple(sides)


_ADAPTERS: Final = ("lora", "qlora")


def with_and_without(text: str, mentions: Sequence[Mention]) -> tuple[Alternative, ...]:
    """One value that is named twice, once with a setting switched on: "ZeRO-3 or ZeRO-3 with offload"."""
    on, names = list[dict[str, Any]](), list[str]()
    for (_, end), (start, named, _) in zip(_clauses(text, mentions), mentions, strict=True):
        found = dict(_switched_on(text, start, end))
        on.append({row.partition(":")[0]: value_of_row(row, on=True) for row in found})
        names.append(text[start : max(named, *found.values())] if found else text[start:named])
    off = {field: () if field == "offload" else False for here in on for field in here}
    if not off or all(on):
        return ()
    return tuple(
        Alternative(name, {**one.fields, **off, **here})
        for name, here, (_, _, one) in zip(names, on, mentions, strict=True)
    )


def _switched_on(text: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Rows of the settings that a clause switches on, each with the end of the words that do."""
    named = False
    for name, pattern in ROWS.group("setting").items():
        for found in pattern.finditer(text[start:end]):
            if not (negated(text, start + found.start()) or is_denied(text, start + found.end())):
                named = named or name.startswith("offload:")
                yield name, start + found.end()
    bare = _BARE["offload"].search(text, start, end)
    if bare is not None and not named and not (negated(text, bare.start()) or is_denied(text, bare.end())):
        yield _OFFLOADS_ALL, bare.end()


_OFFLOADS_ALL: Final = "offload:all:none"
"""The row of an offload of which nobody says what of."""


def _is_off(text: str, start: int, end: int, field: str) -> bool:
    """Whether a clause that does not switch a setting on says that it is off."""
    rows = [pattern for name, pattern in ROWS.group("setting").items() if name.split(":")[0] == field]
    named = field in _BARE and _BARE[field].search(text, start, end) is not None
    named = named or any(pattern.search(text[start:end]) for pattern in rows)
    return named or _WITHOUT_IT.search(text, start, end) is not None


def _clauses(text: str, mentions: Sequence[Mention]) -> Iterator[tuple[int, int]]:
    """From where to where the words of each reach: to the word of choice before the next one."""
    first, last = mentions[0][0], mentions[-1][1]
    start = max((found.end() for found in _CLAUSE_ENDS.finditer(text, 0, first)), default=0)
    for (_, end, _), (following, _, _) in pairwise(mentions):
        choice = next(_CHOICE.finditer(text, end, following), None)
        until, after = choice.span() if choice is not None else (following, following)
        yield start, until
        start = after
    behind = _CLAUSE_ENDS.search(text, last)
    yield start, behind.start() if behind is not None else len(text)


def switched_off(text: str, others: set[str]) -> dict[str, Any]:
    """Settings that are named only to say that they are off: "no liger", ``checkpointing disabled``."""
    found: dict[str, Any] = {}
    for name, pattern in ROWS.group("setting").items():
        field, places = name.split(":")[0], [match.span() for match in pattern.finditer(text)]
        off = all(negated(text, start) or is_denied(text, end) for start, end in places)
        off = off and all(weighed(text, start, end) is None for start, end in places)
        if places and off and field not in others:
            found.setdefault(field, value_of_row(name, on=False))
    return found


def is_denied(text: str, end: int) -> bool:
    """Whether what follows denies it, in the same breath."""
    return text[end : end + 1] not in (",", "，") and denied(text, end)


def switched(text: str, values: Mapping[str, Sequence[Mention]]) -> tuple[Alternative, ...]:
    """The run with a setting and without: the one that stands nearest to words that ask what it saves or changes.

    :param values: values by field; the other one that the text names is what the run has without.
    """
    found: list[tuple[int, str, str]] = []
    for name, pattern in ROWS.group("setting").items():
        for match in pattern.finditer(text):
            if (away := weighed(text, *match.span())) is not None:
                found.append((away, name, match[0]))
    if not found:
        return ()
    _, name, written = min(found)
    field, on = name.split(":")[0], value_of_row(name, on=True)
    others = (m[2] for m in values.get(field, ()) if m[2].fields[field] != on and not negated(text, m[0]))
    without = next(others, Alternative(written, {field: value_of_row(name, on=False)}, "off"))
    return Alternative(written, {field: on}, "on" if without.value == "off" else ""), without


def value_of_row(name: str, *, on: bool) -> Any:
    """What a row ``field:on:off`` sets."""
    field, *values = name.split(":")
    value = values[0] if on else values[1]
    if field == "offload":
        return (("optimizer", "param") if value == "all" else (value,)) if on else ()
    return {"true": True, "false": False, "none": None}.get(value, value)


def weighed(text: str, start: int, end: int) -> int | None:
    """How far the words stand that ask what a setting changes; ``None`` where nobody asks that of it."""
    before = text[max(0, start - MAX_BEFORE) : start]
    if is_need_asked(text, start):
        return 0
    if not (asks_on(text, end) or (not _ASKED.search(text) and ROWS["asks"].search(text))):
        return None
    ahead, behind = ROWS["turns"].search(before), ROWS["matters"].match(text, end)
    if behind is None and (negated(text, start) or denied(text, end)):
        return None  # off in the run that is asked about
    away = [len(before) - ahead.start()] if ahead else []
    return min([*away, behind.end() - end] if behind else away, default=None)
