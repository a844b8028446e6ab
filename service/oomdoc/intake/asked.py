"""What a plain question wants to know: whether it fits, how much it takes, how large it may be, how many cards.

Questions in the field's ordinary words, English or Chinese; a word decides only where the facts leave something open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from oomdoc.evidence import Evidence
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import doubt, is_need_asked, negated
from oomdoc.intake.prose.hardware import named_card
from oomdoc.intake.prose.numbers import to_count
from oomkb.catalog import gpus, models
from oomkb.memory.device import Device

__all__ = ["Alternative", "Asked", "Wanted", "asked_in", "asked_of", "pairs_in"]

Wanted = Literal["fit", "amount", "batch", "length", "cards", "requests", "reserved", "cache"]
"""``requests``: how many at once; ``reserved``: why an engine that runs holds as much as it does; ``cache``: how large
the KV cache alone is.
"""
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
_MAX_CHARACTERS: Final = 4000
_OPTION, _NAME = 120, 48
"""Characters of the last option of a list, and of an option that name it."""
_RE: Final = patterns(__file__)


def _capacity(text: str) -> float | None:
    found = _RE["capacity"].search(text)
    size = float(next(v for n, v in found.groupdict().items() if v and n != "n")) if found is not None else 0.0
    return size if 2 <= size <= 512 else None


def _cards_of_a_size(text: str) -> int | None:
    """``on 2x48``: how many cards, where only what one holds is said."""
    found = _RE["capacity"].search(text)
    count = found["n"] if found is not None else None
    return to_count(count) if count else None


def _request(text: str) -> int | None:
    """Tokens of a request: what goes in and what comes out, together."""
    if (found := _RE["in_out"].search(text)) is not None:
        return sum(_number(n) for n in found.groups() if n)
    return _length(text, "request")


def _length(text: str, row: str = "length") -> int | None:
    found = _RE[row].search(text)
    size = _number(next(n for n in found.groups() if n)) if found is not None else 0
    return size if 16 <= size <= 1 << 22 else None


def _round(length: int | None) -> int | None:
    """A length as people choose them; other numbers in such a place name cards or count something else."""
    return length if length is not None and (length % 256 == 0 or length % 1000 == 0) else None


def _number(written: str) -> int:
    """``16k``, ``4,096``, ``1m``."""
    number = written.replace(",", "").replace(" ", "").lower()
    unit = {"k": 1024, "m": 1 << 20}.get(number[-1])
    return int(number[:-1]) * unit if unit else int(number)


def _concurrency(text: str) -> int | None:
    found = _RE["concurrency"].search(text)
    count = int(next(n for n in found.groups() if n)) if found is not None else 0
    return count if 1 < count <= 4096 else None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One side of a comparison."""

    name: str
    """As the question writes it."""
    fields: Mapping[str, Any]
    """Job fields that make the difference."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, and what the words say of the run that the facts may leave open."""

    wanted: Wanted = "fit"
    trains: bool = False
    serves: bool = False
    infers: bool = False
    """Whether the work named is nothing but running a model."""
    full: bool = False
    """Whether all weights are said to be trained."""
    scratch: bool = False
    engine: str | None = None
    """The engine that is named."""
    capacity_gib: float | None = None
    """What one card holds, where only that is said."""
    cards: int | None = None
    """How many of them, where that stands beside it."""
    concurrency: int | None = None
    """Requests at once."""
    length: int | None = None
    """Tokens of context or of a sample."""
    target_length: int | None = None
    """The length that is asked about, whatever the described run has."""
    request_length: int | None = None
    """Tokens of a usual request, prompt and answer."""
    completion: int | None = None
    """Tokens that are generated for each sample."""
    diffusion: bool = False
    """Whether it is about a model that makes images or video."""
    of_memory: bool = True
    """Whether its words are about memory, sizes or whether something can be run."""
    pure: bool = False
    """Whether training is said to be in 16 bits throughout."""
    quant: str | None = None
    """How the weights are stored, in the words of a job's ``quant`` (``none``: 16 bits)."""
    alternatives: tuple[Alternative, ...] = ()
    """What the question compares: two or more that differ in one setting, in the order of the words."""


def _first(group: str, text: str) -> Any:
    """The first of a group's names whose words stand there."""
    low = text.lower()
    found = (name for name, pattern in _RE.group(group).items() if pattern.may_match(low) and pattern.search(text))
    return next((name.partition(":")[0] for name in found), None)


def asked_in(prose: str) -> Asked:
    """What the words of a question want; ``fit`` where nothing else is asked."""
    return _asked_in(prose[:_MAX_CHARACTERS])


@lru_cache(maxsize=4)
def _asked_in(text: str) -> Asked:
    """Of one input many parts of a diagnosis ask it."""
    wanted: Wanted = _first("wanted", text) or "fit"
    return Asked(
        wanted=wanted,
        trains=_RE["trains"].search(text) is not None,
        serves=_RE["serves"].search(text) is not None,
        infers=_RE["infers"].search(text) is not None,
        capacity_gib=_capacity(text),
        cards=_cards_of_a_size(text),
        length=_length(text),
        target_length=_round(_length(text, "target")),
        request_length=_request(text),
        completion=_length(text, "completion"),
        concurrency=_concurrency(text),
        full=_RE["full"].search(text) is not None,
        scratch=_RE["scratch"].search(text) is not None,
        engine=_first("engine", text),
        diffusion=_RE["diffusion"].search(text) is not None,
        of_memory=_RE["of_memory"].search(text) is not None,
        pure=_RE["pure"].search(text) is not None,
        quant=_first("format", text),
        alternatives=_alternatives(text),
    )


_Mention = tuple[int, int, Alternative]


def _alternatives(text: str) -> tuple[Alternative, ...]:
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
    if _RE["between"].search(text) is not None or _RE["weighs"].search(text) is not None:
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
    marks = list(_RE["option"].finditer(text))
    sides = []
    for n, mark in enumerate(marks):
        until = marks[n + 1].start() if n + 1 < len(marks) else mark.end() + _OPTION
        words = re.split(r"[?？。\n]|\.\s", text[mark.end() : until], maxsplit=1)[0].strip(" ,;，；:：")
        fields: dict[str, Any] = {}
        for found in (_models(words), *_settings(words), _cards(words)):
            fields |= found[-1][2].fields if found else {}
        for field, pattern in _RE.group("number").items():
            number = pattern.search(words)
            value = _number(next(v for v in number.groups() if v)) if number else _length(words)
            if (number or field == "seq_len") and value and (field != "lora.r" or "lora" in words.lower()):
                fields[field] = value
        if fields:
            sides.append(Alternative(re.split(r"[,;，；。]", words)[0][:_NAME], fields))
    distinct = _distinct(sides)
    alike = bool(distinct) and set.intersection(*(set(side.fields) for side in distinct))
    return distinct if alike and 1 < len(distinct) <= _MAX_SIDES else ()


def _is_asked(text: str, end: int) -> bool:
    """Whether the sentence that goes on there is a question."""
    stop = _RE["stop"].search(text, end)
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
    for field, pattern in _RE.group("number").items():
        if field == "lora.r" and "lora" not in text.lower():
            continue  # the rank of a process
        written: list[str] = []
        for match in pattern.finditer(text):
            first = next(n for n in match.groups() if n)
            other = _RE["other_number"].match(text, match.end())
            if other is not None and _same_kind(field, first, other["n"], text[other.end() : other.end() + 10]):
                written += [first, other["n"]]
            elif written:
                written.append(first)
        sides = _distinct(Alternative(_SHOWN[field].format(n), {field: _number(n)}) for n in written)
        if 1 < len(sides) <= _MAX_SIDES:
            return sides
    return ()


def _same_kind(field: str, first: str, second: str, behind: str) -> bool:
    """Whether two numbers may be values of one setting, by their ratio and the unit behind the second."""
    one, two = _number(first), _number(second)
    near = min(one, two) > 0 and max(one, two) <= _MAX_RATIO * min(one, two)
    return near and (field == "seq_len" or _RE["length_unit"].match(behind) is None)


def _with_and_without(text: str) -> tuple[Alternative, ...]:
    """The run with a setting and without, where it is asked what that saves, or whether it is needed."""
    saves = _RE["saves"].search(text) is not None
    for name, pattern in _RE.group("setting").items():
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
    for name, pattern in _RE.group("choice").items():
        field, _, value = name.partition(":")
        for match in pattern.finditer(text):
            mentions = by_field.setdefault(field, [])
            mentions.append((*match.span(), Alternative(match[0], {field: value})))
            other = _RE["other_stage"].match(text, match.end()) if value.startswith("zero") else None
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
        behind = _RE["other_size"].match(text, m.end)  # "Qwen3-8B or 14B"
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
        joined = [m.end() for m in _RE["between"].finditer(text, since, start)]
        parted = _RE["between"].search(text, end, until)
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
    methods = {n.partition(":")[2]: p for n, p in _RE.group("choice").items() if n.startswith("method:")}
    for field, patterns_ in (("quant", _RE.group("format")), ("method", methods)):
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
    weighs = _RE["weighs"].search(text) is not None
    choice = [_RE["between"], _RE["together"]] if weighs else [_RE["between"]]
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


def asked_of(evidence: Evidence, *, failed: bool = False) -> Asked:
    """What the words of an input ask for; of one without words, what its documents are about.

    :param failed: whether it tells of a failure: then the failing lines count too.
    """
    if failed:
        return asked_in(f"{evidence.prose}\n{evidence.digest}")
    return asked_in(evidence.prose or "\n".join(document.text[:2000] for document in evidence.documents))


def pairs_in(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """``field=value`` as written in the words, in order."""
    found = _RE["pair"].finditer(evidence.prose[:_MAX_CHARACTERS])
    return tuple((match[1], match[2].strip("\"'`,;，；。")) for match in found)
