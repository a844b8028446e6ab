"""What a question compares: models, cards, methods, formats, or values of one setting.

The rows are those of ``asked.tsv``; :mod:`oomdoc.intake.asked` reads the rest of the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import doubt, is_need_asked, negated
from oomdoc.intake.prose.hardware import named_card
from oomkb.catalog import gpus, models
from oomkb.memory.device import Device

__all__ = ["ROWS", "Alternative", "alternatives_in", "length_in", "number_of"]

ROWS: Final = patterns(str(Path(__file__).with_name("asked.py")))
"""Words of questions."""
_MAX_BETWEEN: Final = 32
"""Characters between two things that are compared."""
_MAX_SIDES: Final = 4
_LISTED: Final = 3
"""Machines of different kinds from which a question compares them, whatever else it names."""
_MAX_RATIO: Final = 32
"""Between two values of one setting that a question compares."""
_SHOWN: Final = {"lora.r": "r={}", "micro_batch": "batch {}", "seq_len": "{} tokens", "gpus": "{} GPUs"}
"""How the values of a numeric setting are named."""
_ASIDE: Final = re.compile(r"[(（][^()（）]{0,80}[)）]")
_OPTION, _NAME = 120, 48
"""Characters of the last option of a list, and of an option that name it."""


def length_in(text: str, row: str = "length") -> int | None:
    """The tokens that a row of lengths finds."""
    found = ROWS[row].search(text)
    size = number_of(next(n for n in found.groups() if n)) if found is not None else 0
    return size if 16 <= size <= 1 << 22 else None


def number_of(written: str) -> int:
    """``16k``, ``4,096``, ``1m``."""
    number = written.replace(",", "").replace(" ", "").lower()
    unit = {"k": 1024, "m": 1 << 20}.get(number[-1])
    return int(number[:-1]) * unit if unit else int(number)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One side of a comparison."""

    name: str
    """As the question writes it."""
    fields: Mapping[str, Any]
    """Job fields that make the difference."""


_Mention = tuple[int, int, Alternative]


def alternatives_in(text: str) -> tuple[Alternative, ...]:
    """What stands on both sides of an "or", "vs" or "还是": models, cards, or words for one setting.

    Machines and ZeRO stages that a question names exclude each other: they are compared whatever stands between them.
    """
    settings = list(_settings(text))
    cards = _cards(text)
    machines = _distinct(
        m[2] for m in sorted(cards, key=lambda m: m[0]) if _is_asked(text, m[1]) or not doubt(text, m[0], m[1])
    )
    if _LISTED <= len(machines) <= _MAX_SIDES:
        return machines  # a list of machines is what a question is about
    if options := _options(text):
        return options
    if ROWS["between"].search(text) is not None or ROWS["weighs"].search(text) is not None:
        for mentions in (_beside(text, _models(text)), *settings, cards):
            found = _compared(text, sorted(mentions, key=lambda m: m[0]))
            if len(found) > 1:
                return found
    if numbers := _numbers(text) or _with_and_without(text):
        return numbers
    stages = next((m for m in settings if m[0][2].fields.get("sharding", "").startswith("zero")), [])
    named = (m[2] for m in sorted(stages, key=lambda m: m[0]) if not negated(text, m[0]))
    return next((sides for sides in (machines, _distinct(named)) if 1 < len(sides) <= _MAX_SIDES), ())


def _options(text: str) -> tuple[Alternative, ...]:
    """Options of a marked list, each with the fields that its words set."""
    marks = list(ROWS["option"].finditer(text))
    sides = []
    for n, mark in enumerate(marks):
        until = marks[n + 1].start() if n + 1 < len(marks) else mark.end() + _OPTION
        words = re.split(r"[?？。\n]|\.\s", text[mark.end() : until], maxsplit=1)[0].strip(" ,;，；:：")
        fields: dict[str, Any] = {}
        for found in (_models(words), *_settings(words), _cards(words)):
            fields |= found[-1][2].fields if found else {}
        for field, pattern in ROWS.group("number").items():
            number = pattern.search(words)
            value = number_of(next(v for v in number.groups() if v)) if number else length_in(words)
            if (number or field == "seq_len") and value and (field != "lora.r" or "lora" in words.lower()):
                fields[field] = value
        if fields:
            sides.append(Alternative(re.split(r"[,;，；。]", words)[0][:_NAME], fields))
    distinct = _distinct(sides)
    alike = bool(distinct) and set.intersection(*(set(side.fields) for side in distinct))
    return distinct if alike and 1 < len(distinct) <= _MAX_SIDES else ()


def _is_asked(text: str, end: int) -> bool:
    """Whether the sentence that goes on there is a question."""
    stop = ROWS["stop"].search(text, end)
    return stop is not None and stop[0] in "?？"


def _distinct(sides: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """Each difference once, as first named; what is named again with less ("the H100") is the same."""
    found: list[Alternative] = []
    for side in sides:
        if not any(side.fields.items() <= other.fields.items() for other in found):
            found.append(side)
    return tuple(found)


def _numbers(text: str) -> tuple[Alternative, ...]:
    """Two or more values of one numeric setting, where words set them against each other."""
    for field, pattern in ROWS.group("number").items():
        if field == "lora.r" and "lora" not in text.lower():
            continue  # the rank of a process
        written: list[str] = []
        for match in pattern.finditer(text):
            first = next(n for n in match.groups() if n)
            other = ROWS["other_number"].match(text, match.end())
            if other is not None and _same_kind(field, first, other["n"], text[other.end() : other.end() + 10]):
                written += [first, other["n"]]
            elif written:
                written.append(first)
        sides = _distinct(Alternative(_SHOWN[field].format(n), {field: number_of(n)}) for n in written)
        if 1 < len(sides) <= _MAX_SIDES:
            return sides
    return ()


def _same_kind(field: str, first: str, second: str, behind: str) -> bool:
    """Whether two numbers may be values of one setting, by their ratio and the unit behind the second."""
    one, two = number_of(first), number_of(second)
    near = min(one, two) > 0 and max(one, two) <= _MAX_RATIO * min(one, two)
    return near and (field == "seq_len" or ROWS["length_unit"].match(behind) is None)


def _with_and_without(text: str) -> tuple[Alternative, ...]:
    """The run with a setting and without, where it is asked what that saves, or whether it is needed."""
    saves = ROWS["saves"].search(text) is not None
    for name, pattern in ROWS.group("setting").items():
        field, on, off = name.split(":")
        match = next((m for m in pattern.finditer(text) if saves or is_need_asked(text, m.start())), None)
        if match is not None:
            values: list[Any] = [{"true": True, "false": False}.get(v, v) for v in (on, off)]
            marks = (f"{match[0]}: on", f"{match[0]}: off")
            return tuple(Alternative(mark, {field: v}) for mark, v in zip(marks, values, strict=True))
    return ()


def _settings(text: str) -> Iterator[list[_Mention]]:
    """By field: the words that set it, and bare values behind one ("ZeRO-2 or 3")."""
    by_field: dict[str, list[_Mention]] = {}
    for name, pattern in ROWS.group("choice").items():
        field, _, value = name.partition(":")
        for match in pattern.finditer(text):
            mentions = by_field.setdefault(field, [])
            mentions.append((*match.span(), Alternative(match[0], {field: value})))
            other = ROWS["other_stage"].match(text, match.end()) if value.startswith("zero") else None
            if other is not None:
                side = Alternative(f"ZeRO-{other['stage']}", {field: f"zero{other['stage']}"})
                mentions.append((*other.span("stage"), side))
    yield from by_field.values()


def _models(text: str) -> list[_Mention]:
    found: list[_Mention] = []
    for m in models.find_all(text):
        if m.entry is None or not m.named:
            continue
        found.append((m.start, m.end, Alternative(m.text, {"model": m.entry.name, "params_b": None})))
        behind = ROWS["other_size"].match(text, m.end)  # "Qwen3-8B or 14B"
        other = models.find(re.sub(r"\d[\d.]*[bB]", behind["size"], m.text, count=1)) if behind else None
        if behind and other is not None and other.name != m.entry.name:
            name = behind["size"]
            found.append(
                (behind.start("size"), behind.end(), Alternative(name, {"model": other.name, "params_b": None}))
            )
    return found


def _beside(text: str, mentions: list[_Mention]) -> list[_Mention]:
    """Models with the method or the format that the words around each give it: "4-bit of A or LoRA of B"."""
    named: list[tuple[int, int, Alternative, dict[str, tuple[str, str]]]] = []
    ordered = sorted(mentions, key=lambda m: m[0])
    for n, (start, end, one) in enumerate(ordered):
        since = max(ordered[n - 1][1] if n else 0, start - _MAX_BETWEEN)
        until = min(ordered[n + 1][0] if n + 1 < len(ordered) else len(text), end + _MAX_BETWEEN)
        joined = [m.end() for m in ROWS["between"].finditer(text, since, start)]
        parted = ROWS["between"].search(text, end, until)
        around = (text[joined[-1] if joined else since : start], text[end : parted.start() if parted else until])
        parts = (one.name, *around)
        named.append((start, end, one, {field: (value, word) for field, value, word in _words_of(parts)}))
    common = set.intersection(*(set(words) for *_, words in named)) if named else set()
    return [(start, end, _with_words(one, {n: words[n] for n in common})) for start, end, one, words in named]


def _with_words(one: Alternative, words: Mapping[str, tuple[str, str]]) -> Alternative:
    fields = {**one.fields, **{name: value for name, (value, _) in words.items()}}
    further = (word for _, word in words.values() if word.lower() not in one.name.lower())
    return Alternative(" ".join((one.name, *further)), fields)


def _words_of(parts: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """The format and the method that words name: the field, its value and the word."""
    methods = {n.partition(":")[2]: p for n, p in ROWS.group("choice").items() if n.startswith("method:")}
    for field, patterns_ in (("quant", ROWS.group("format")), ("method", methods)):
        found = ((name, match) for name, p in patterns_.items() for part in parts if (match := p.search(part)))
        name, match = next(found, (None, None))
        if name is not None and match is not None:
            yield field, name.partition(":")[0], match[0]


def _cards(text: str) -> list[_Mention]:
    found: list[_Mention] = []
    for mention in gpus.find_all(text):
        named = named_card(text, mention)
        if named is not None:
            name, start, count = named
            device = _single(mention.device, gpus.find(name), count or 1)
            fields = {"gpu": device.name, "capacity_gib": None, **({"gpus": count} if count else {})}
            name = re.sub(r"(?<=\d)(?<!l40)s\Z", "", name)
            shown = f"{count} × {name}" if count and count > 1 else name
            found.append((start, mention.end, Alternative(shown, fields)))
    return found


def _single(device: Device, plain: Device | None, count: int) -> Device:
    """The card itself where the size at its name is what all of them hold together."""
    if plain is None or not plain.nominal_bytes or count < 2:
        return device
    return plain if device.nominal_bytes == count * plain.nominal_bytes else device


def _compared(text: str, mentions: list[_Mention]) -> tuple[Alternative, ...]:
    """The first run of different mentions that words of choice join; commas may part the earlier ones."""
    chain: list[Alternative] = []
    end, joined = 0, False
    weighs = ROWS["weighs"].search(text) is not None
    choice = [ROWS["between"], ROWS["together"]] if weighs else [ROWS["between"]]
    for start, stop, one in mentions:
        between = _ASIDE.sub("", text[end:start])
        near = bool(chain) and 0 < len(between) <= _MAX_BETWEEN and not re.search(r"[.?!。？！\n]\s", between)
        listed = near and re.fullmatch(r"\s*[,、/]\s*", between) is not None
        chosen = near and ((listed and weighs) or any(words.search(between) for words in choice))
        if chosen or listed:
            if all(one.fields != other.fields for other in chain):
                chain.append(one)
            joined = joined or chosen
        elif joined and len(chain) > 1:
            break
        else:
            chain, joined = [one], False
        end = stop
    return tuple(chain) if joined and len(chain) > 1 else ()
