"""Settings that words name: the method, the sharding, formats of weights and of the KV cache, optimizers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from oomdoc.intake.numbers import number_of
from oomdoc.intake.patterns import patterns
from oomdoc.intake.prose.hardware import named_card
from oomkb.catalog import gpus, models
from oomkb.dataclass import dataclass
from oomkb.kept import compiled
from oomkb.memory.device import Device
from oomkb.memory.mode import VOCABULARY

ROWS: Final = patterns(str(Path(__file__).with_name("asked.py")))
"""Words of questions."""
_BEFORE: Final = 64
"""Characters before a card in which words ask for it."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One side of a comparison."""

    name: str
    """As the question writes it."""
    fields: Mapping[str, Any]
    """Job fields that make the difference."""
    value: str = ""
    """Of one number, as it is written; of a setting, ``on`` or ``off``."""
    parts: tuple[Alternative, ...] = ()
    """Where it differs in several ways that the question sets apart: one for each."""


Mention = tuple[int, int, Alternative]


def models_in(text: str) -> list[Mention]:
    """Every model that is named, and sizes behind one."""
    found: list[Mention] = []
    for m in models.find_all(text):
        if m.entry is None or not m.named:
            continue
        found.append((m.start, m.end, Alternative(m.text, {"model": m.entry.name, "params_b": None})))
        end = m.end
        while (behind := ROWS["other_size"].match(text, end)) is not None:  # "Qwen3-8B, 14B or 32B"
            other = models.find(re.sub(r"\d[\d.]*[bB]", behind["size"], m.text, count=1))
            if other is None or other.name == m.entry.name:
                break
            found.append((*behind.span("size"), Alternative(behind["size"], {"model": other.name, "params_b": None})))
            end = behind.end("size")
    if not found:
        sizes = list(ROWS["bare_size"].finditer(text))
        of_family = _of_family(text, [size[1] for size in sizes])
        for size in sizes:
            fields = {"model": of_family.get(size[1]), "params_b": None if of_family else float(size[1])}
            found.append((*size.span(), Alternative(size[0], fields)))
    return found


def _of_family(text: str, sizes: Sequence[str]) -> dict[str, str]:
    """Size → model of the family that is named apart from it, "Qwen2.5 上 7B 还是 14B"; none where one is unknown."""
    for word in dict.fromkeys(ROWS["family"].findall(text)) if sizes else ():
        models_of = {size: models.find(f"{word}-{size}B") for size in sizes}
        if all(entry is not None for entry in models_of.values()):
            return {size: entry.name for size, entry in models_of.items() if entry is not None}
    return {}


def cards_in(text: str) -> list[Mention]:
    """Every card that is named, with its count."""
    return [*_cards_in(text)]


@lru_cache(maxsize=8)
def _cards_in(text: str) -> tuple[Mention, ...]:
    """What is compared, what is set and what is counted in a question are asked one after the other."""
    found: list[Mention] = []
    for mention in gpus.find_all(text):
        named = named_card(text, mention)
        if named is not None:
            name, start, count = named
            device = _single(mention.device, gpus.find(name), count or 1)
            shared = ROWS["shared_size"].match(text, mention.end) if device.unified else None
            size = float(shared["n"]) if shared is not None else None
            fields = {"gpu": device.name, "capacity_gib": size, **({"gpus": count} if count else {})}
            name = re.sub(r"(?<=\d)(?<!l40)s\Z", "", name)
            shown = f"{count} × {name}" if count and count > 1 else name
            found.append((start, mention.end, Alternative(shown, fields)))
    return tuple(found)


def needed_card(text: str) -> str | None:
    """The card of which it is asked whether it takes that one: ``do I need an A100?``."""
    for mention in gpus.find_all(text):
        named = named_card(text, mention)
        if named is not None and ROWS["needs_card"].search(text[max(0, named[1] - _BEFORE) : named[1]]):
            return named[0]
    return None


def _single(device: Device, plain: Device | None, count: int) -> Device:
    """The card itself where the size at its name is what all of them hold together."""
    if plain is None or not plain.nominal_bytes or count < 2:
        return device
    return plain if device.nominal_bytes == count * plain.nominal_bytes else device


_PAUSE: Final = compiled(r"[?？。,，;；、\n]")
_NEAR: Final = 32
"""Characters around a format in which the cache is named that holds it."""
CACHED: Final = {"none": "bf16"}
"""Formats of a KV cache that are called otherwise than those of weights."""


def worded(text: str) -> dict[str, list[Mention]]:
    """By field: the words that set it, and bare stages behind one ("ZeRO-2 or 3")."""
    return {field: [*mentions] for field, mentions in _worded(text).items()}


@lru_cache(maxsize=8)
def _worded(text: str) -> dict[str, list[Mention]]:
    by_field: dict[str, list[Mention]] = {}
    for name, pattern in ROWS.group("choice").items():
        field, _, value = name.partition(":")
        for match in pattern.finditer(text):
            if field == "quant" and _of_optimizer(text, match.end()):
                continue
            cached = field == "quant" and of_cache(text, *match.span())
            fields = {"serving.kv_dtype": CACHED.get(value, value)} if cached else {field: value}
            mentions = by_field.setdefault(next(iter(fields)), [])
            mentions.append((*match.span(), Alternative(match[0], fields)))
            end = match.end() if value.startswith("zero") else len(text)
            while (other := ROWS["other_stage"].match(text, end)) is not None:
                named = Alternative(f"ZeRO-{other['stage']}", {field: f"zero{other['stage']}"})
                mentions.append((*other.span("stage"), named))
                end = other.end("stage")
    taken = [m[:2] for m in by_field.get("optimizer", ())]
    optimizers, words = _optimizers()
    for match in optimizers.finditer(text):
        if not any(start < match.end() and match.start() < end for start, end in taken):
            named = Alternative(match[0], {"optimizer": words[re.sub(r"[-_ .]", "", match[0].lower())]})
            by_field.setdefault("optimizer", []).append((*match.span(), named))
    if sizes := list(_sizes_of_pictures(text)):
        by_field["max_pixels"] = sizes
    return by_field


_WIDTHS: Final = {"480": 854, "720": 1280, "1080": 1920, "1440": 2560, "2160": 3840}
"""Pixels in a row of a video of so many lines."""
_AROUND_PICTURE: Final = 80
"""Characters around the size of a picture in which words of pictures stand."""
_MAX_SIDE: Final = 16_384
"""Pixels of the longer side of a picture; numbers beyond are of something else."""


def _sizes_of_pictures(text: str) -> Iterator[Mention]:
    """Sizes of pictures: ``1920x1080 screenshots``, ``1080p``."""
    for found in ROWS["picture_size"].finditer(text):
        lines = found["lines"] or ("2160" if found["uhd"] else "")
        width, height = int(found["width"] or _WIDTHS[lines]), int(found["height"] or lines)
        around = text[max(0, found.start() - _AROUND_PICTURE) : found.end() + _AROUND_PICTURE]
        if max(width, height) <= _MAX_SIDE and ROWS["of_pictures"].search(around) is not None:
            yield (*found.span(), Alternative(found[0], {"max_pixels": width * height}, found[0]))


def _of_optimizer(text: str, end: int) -> bool:
    """Whether bits are those of an optimizer's states: ``8-bit AdamW``."""
    return ROWS["optimizer_behind"].match(text, end) is not None


def of_cache(text: str, start: int, end: int) -> bool:
    """Whether a format is that of the KV cache: it is named near by, and no other format stands between."""
    formats = _formats(text)
    for begin, stop in sorted(formats, reverse=True):
        if stop <= start and _JOINED.fullmatch(text, stop, start):
            start = begin  # "KV cache fp8 or fp16": of both
    first = max([max(0, start - _NEAR), *(stop for _, stop in formats if stop <= start)])
    last = min([end + _NEAR, *(begin for begin, _ in formats if begin >= end)])
    around = f"{_PAUSE.split(text[first:start])[-1]} {_PAUSE.split(text[end:last])[0]}"
    if ROWS["of_cache"].search(around) is not None:
        return True
    alone = all(begin >= start for begin, _ in formats) and ROWS["of_weights"].match(text, end) is None
    return alone and ROWS["cache_begins"].search(text, 0, start) is not None


@lru_cache(maxsize=8)
def _formats(text: str) -> tuple[tuple[int, int], ...]:
    """Where formats of numbers are named."""
    rows = ROWS.group("choice").items()
    return tuple(m.span() for name, pattern in rows if name.startswith("quant:") for m in pattern.finditer(text))


_JOINED: Final = compiled(
    r"\s*(?:,? ?\b(?:or|vs\.?|versus|and|instead of|to)\b|[/,、，和到至→]|还是|或者?|[换改变转][成为到]|[-=]+>)\s*",
    re.IGNORECASE,
)


@cache
def _optimizers() -> tuple[re.Pattern[str], dict[str, str]]:
    """Every optimizer that a job may have, as it is written, and the job's word for it."""
    named = VOCABULARY["optimizer"].items()
    words = {spelt: word for word, others in named for spelt in (word, *others.split()) if word != "none"}
    longest = sorted(words, key=len, reverse=True)
    spelt = "|".join(re.sub(r"\\?[-_.]", "[-_ .]?", re.escape(word)) for word in longest)
    pattern = compiled(rf"(?<![\w-])(?:{spelt})(?![\w-])", re.IGNORECASE | re.ASCII)
    return pattern, {re.sub(r"[-_.]", "", spelt): word for spelt, word in words.items()}


def has_settings(options: Sequence[Alternative]) -> bool:
    """Whether options differ in more than their machines."""
    return any(
        value is not None and name not in _OF_MACHINES for side in options for name, value in side.fields.items()
    )


_OF_MACHINES: Final = frozenset({"gpu", "gpus", "nodes", "capacity_gib"})


@dataclass(frozen=True, slots=True)
class WrittenNumber:
    """A number as a question writes it."""

    values: frozenset[float]
    """What it may mean: ``4k`` is 4,000 or 4,096."""
    phrase: str
    """It and the words beside it."""


_SCALES: Final = {"k": (1e3, 1024.0, 1.0), "m": (1e6, 2.0**20, 1.0), "t": (1024.0, 1000.0, 1.0)}


def written_numbers(text: str) -> tuple[WrittenNumber, ...]:
    """The numbers of a text from 2 on, each with the words beside it; no times, no prices and no sizes of pictures."""
    written, pictures = [], [(start, end) for start, end, _ in _sizes_of_pictures(text)]
    for found in ROWS["written"].finditer(text):
        if any(start <= found.start("number") < end for start, end in pictures):
            continue
        number, unit = found["number"].lower(), (found["unit"] or "").strip().lower()
        value = float(number.replace(",", "")) if number[:1].isdigit() else float(number_of(number))
        aside = (
            ROWS["aside"].match(text, found.end("unit" if found["unit"] else "number"))
            or ROWS["price"].search(text, max(0, found.start() - 2), found.start())
            or ROWS["before_aside"].search(text, 0, found.start("number"))
        )
        if value >= 2 and not aside:
            values = frozenset(value * scale for scale in _SCALES.get(unit[:1], (1.0,)))
            written.append(WrittenNumber(values, found["phrase"].strip()))
    return tuple(written)
