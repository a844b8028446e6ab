"""Finding cards in text: a token names the core, the words around it select the variant.

Linear: one pass over word tokens with a dictionary look-up each; only around a hit is the context read, from
a window of fixed size.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, Literal

from oomkb.catalog import gpu_data
from oomkb.catalog import gpu_words as w
from oomkb.catalog.gpu_data import lowered, occurrences
from oomkb.catalog.instances import Machine
from oomkb.dataclass import dataclass
from oomkb.memory.device import Device
from oomkb.units import GIB

_MAX_PLURAL: Final = 64
"""Cards before a plural number (``4 3090s``)."""
Strength = Literal["strong", "cased", "weak", "number", "apple", "slice"]


@dataclass(frozen=True, slots=True)
class GpuMention:
    """One place where a text names a card."""

    device: Device
    start: int
    end: int
    text: str
    count: int | None = None
    """``8`` in ``8×A800``: how many of them, where it is written at the name."""
    certainty: int = 0
    """How much beside the core token speaks for this card and variant; orders several mentions."""
    candidates: tuple[Device, ...] = ()
    """All variants that the name leaves open, the chosen one first."""
    machine: Machine | None = None
    """The rented machine by whose name the card is named."""


@dataclass(frozen=True, slots=True)
class _Variant:
    needs: frozenset[str]
    entry: gpu_data.Entry


@dataclass(frozen=True, slots=True)
class _Core:
    variants: tuple[_Variant, ...]
    vocabulary: frozenset[str]
    strength: Strength


@dataclass(slots=True)
class _Context:
    """What was read around a core token."""

    start: int
    end: int
    words: set[str]
    size_gb: float | None = None
    other_size_gb: int | None = None
    """A size at the name that the catalogue has no variant of."""
    count: int | None = None
    evidence: int = 0


def _strength(core: str, vendor: str) -> Strength:
    if core.isdigit():
        return "number"
    if w.RE["slice"].match(core):
        return "slice"
    if vendor == "apple":
        return "apple"
    if len(core) <= 2:
        return "weak"
    return "cased" if len(core) == 3 and core[1:].isdigit() else "strong"


@cache
def _cores() -> dict[str, _Core]:
    grouped: dict[str, list[_Variant]] = {}
    for entry in gpu_data.entries():
        for core, needs in entry.keys:
            grouped.setdefault(core, []).append(_Variant(needs, entry))
    return {
        core: _Core(
            tuple(found),
            frozenset().union(*(v.needs | v.entry.words for v in found)),
            _strength(core, found[0].entry.device.vendor),
        )
        for core, found in grouped.items()
    }


def is_core(token: str) -> bool:
    """Whether a lower-case word alone names a card: ``910b``, ``a100``."""
    return token in _cores()


@lru_cache(maxsize=8192)
def _glued(token: str) -> tuple[str, tuple[str, ...], int | None] | None:
    """``8xrtx3090ti`` as (core ``3090``, (``rtx``, ``ti``), 8), or ``None``."""
    head = w.RE["glued_head"].match(token)
    assert head is not None  # every part is optional
    rest = token[head.end() :]
    for length in range(len(rest), 1, -1):
        core = rest[:length]
        if core not in _cores():
            continue
        words = _tail(rest[length:])
        if words is not None and (head.end() or words or length == len(token)):
            prefix = [word for word in w.VENDOR_WORDS if word in head[2]]
            return core, (*prefix, *words), int(head[1]) if head[1] else None
    return None


def _tail(text: str) -> tuple[str, ...] | None:
    words: list[str] = []
    at = 0
    while at < len(text):
        found = w.RE["glued_tail"].match(text, at)
        if found is None:
            return None
        words.append(found[0])
        at = found.end()
    return tuple(words)


def _take_word(word: str, core: _Core, context: _Context) -> bool:
    word = w.SAME.get(word, word)
    if word in core.vocabulary:
        context.words.add(word)
        context.evidence += 1
        return True
    if word in w.VENDOR_WORDS:
        context.evidence += 1
        return True
    if word in w.NEUTRAL:
        context.evidence += word in w.CARD_WORDS
        return True
    size = w.RE["size"].match(word)
    if core.strength == "slice" and size:  # the whole card's size, before the slice's
        return True
    if size and not word.isdigit() and context.size_gb is None and _sold(core, float(size[1])):
        context.size_gb = float(size[1])
        context.evidence += 1
        return True
    return False


def _sold(core: _Core, size_gb: float) -> bool:
    return any(abs(size_gb - s) <= 0.09 * s for v in core.variants for s in v.entry.sizes_gb)


def _read_right(text: str, core: _Core, context: _Context) -> None:
    reached = context.end
    for _ in range(8):
        count = w.RE["count_after"].match(text, reached)
        if count and context.count is None:
            context.count, reached = int(count[1]), count.end()
            context.evidence += 1
            context.end = reached
            continue
        gap = w.RE["gap"].match(text, reached)
        at = gap.end() if gap else reached
        word = w.RE["word"].match(text, at)
        if word is None or _begins_another(text, word):
            return
        name = word[0].lower()
        tied = text[reached:at] in w.TIES or (text[reached:at] == " " and w.RE["item_ends"].match(text, word.end()))
        if name.isdigit() and tied and _sold(core, float(name)):
            name = f"{name}gb"  # "A100-40"
        if not _take_word(name, core, context):
            return
        reached = word.end()
        if name not in w.NEUTRAL:
            context.end = reached
            if text[at - 1 : at] in ("(", "（") and text[reached : reached + 1] in (")", "）"):
                context.end = reached + 1


def _begins_another(text: str, word: re.Match[str]) -> bool:
    """Whether a maker's word stands before the next card's name: ``L40S, RTX 4090``."""
    if word[0].lower() not in w.VENDOR_WORDS:
        return False
    name = w.RE["word"].match(text, word.end() + 1)
    return name is not None and is_core(name[0].lower())


def _read_left(text: str, core: _Core, context: _Context, *, plural: bool) -> None:
    reached = context.start
    for _ in range(6):
        window = text[max(0, reached - 24) : reached]
        offset = reached - len(window)
        count = w.RE["count_before"].search(window)
        if count is None and (core.strength != "number" or context.evidence or plural):
            count = w.RE["bare_count"].search(window)
            if count and plural and not 2 <= int(count[1]) <= _MAX_PLURAL:
                return  # "step 400 3090s": seconds
        if count and context.count is None:
            context.count = w.NUMERALS.get(count[1]) or int(count[1])
            context.start = offset + count.start()
            context.evidence += 1
            return
        word = w.RE["before"].search(window)
        if word is None or "\n" in word[0]:
            return
        # "MacBook Pro M2" is an M2, "Titan RTX" a Titan: Apple's suffixes stand behind.
        if core.strength == "apple" and word[1].lower() in core.vocabulary:
            context.start = reached = offset + word.start()
            continue
        name = word[1].lower()
        if not _take_word(name, core, context):
            return
        reached = offset + word.start()
        if name in w.VENDOR_WORDS or name not in w.NEUTRAL:  # "out of memory with A100" begins at the card
            context.start = reached


def _plausible(text: str, start: int, end: int, core: _Core, context: _Context) -> bool:
    """Whether a bare core token in prose means a card."""
    if core.strength in ("strong", "slice"):
        return True
    if w.RE["fraction_follows"].match(text, end):
        return False
    if core.strength == "apple":
        return w.RE["apple_tier"].match(text, end) is not None or bool(
            w.RE["about_macs"].search(text, max(0, start - 80), end + 80)
        )
    if context.evidence:
        return True
    before = text[max(0, start - 12) : start]
    introduced = start == 0 or before.endswith("\n") or bool(w.RE["introduces"].search(before))
    listed = in_list(text, start, end)
    introduced = introduced or listed
    if core.strength == "number":
        an_item = w.RE["item_before"].search(before) and w.RE["item_behind"].match(text, end)
        introduced = introduced or bool(an_item)
        other = w.RE["not_a_card"].match(text, end) is not None and not listed
        return introduced and not other and not (start == 0 and end == len(text))
    if core.strength == "cased":
        return text[start].isupper() or introduced
    if text[start - 1 : start] in ("-", "_") and text[end : end + 1] in ("-", "_"):
        return False  # a part of a longer name: "ReMM-L2-Chat-20B"
    if not text[start].isupper():
        return bool(w.RE["sold_by"].search(before))
    near = bool(w.RE["about_gpus"].search(text, max(0, start - 60), end + 60))
    begins = start == 0 and w.RE["works"].match(text, end) is not None
    return near or listed or begins or (introduced and start > 0 and not before.endswith("\n"))


def in_list(text: str, start: int, end: int) -> bool:
    """Whether another card stands beside the name, in a list of them."""
    before = w.RE["listed_before"].search(text, max(0, start - 32), start)
    behind = w.RE["listed_behind"].match(text, end, end + 32)
    return any(found is not None and is_core(found[1].lower()) for found in (before, behind))


def _best_gap(entry: gpu_data.Entry, size_gb: float) -> float:
    """How far a size in GB is from what the card is sold with or reports."""
    return min(abs(size_gb - s) for s in (*entry.sizes_gb, entry.device.capacity_bytes / GIB))


def _rank(variant: _Variant, context: _Context, capacity_bytes: int | None) -> tuple[int, float, float, float, int]:
    sizes, size = variant.entry.sizes_gb, context.size_gb
    size_gap = _best_gap(variant.entry, size) if size is not None else 0.0
    sold_gap = min(abs(size - s) for s in sizes) if size is not None else 0.0  # "36 GB" is also what Metal gives of 48
    total_gap = 0.0
    if capacity_bytes is not None:
        totals = (variant.entry.device.capacity_bytes, *variant.entry.device.observed_bytes)
        gap = min(abs(t - capacity_bytes) for t in totals)
        total_gap = min(gap, *(abs(s * GIB - capacity_bytes) for s in sizes)) / GIB
        total_gap = 0.0 if total_gap < 1 else total_gap
    return (len(variant.needs), -size_gap, -sold_gap, -total_gap, len(variant.entry.words & context.words))


def _resolve(core: _Core, context: _Context, capacity_bytes: int | None) -> tuple[Device, ...]:
    eligible = [v for v in core.variants if v.needs <= context.words]
    if not eligible:
        return ()
    ranks = [_rank(v, context, capacity_bytes) for v in eligible]
    best = max(ranks)
    variant = eligible[ranks.index(best)]
    chosen = variant.entry
    if context.words & w.PRODUCT_WORDS - variant.needs - chosen.words:
        return ()  # a 5070 Ti for laptops is neither a 5070 Ti nor a 5070 for laptops
    same = tuple(v.entry.device for v, r in zip(eligible, ranks, strict=True) if r == best and v.entry is not chosen)
    size = context.size_gb if context.size_gb is not None else (capacity_bytes or 0) / GIB
    other = context.other_size_gb
    if other is None and context.size_gb is not None and _best_gap(chosen, context.size_gb) > 0.09 * context.size_gb:
        other = int(context.size_gb)  # a size of another card of this number
    if other is not None and not _several(chosen, other, context.count):
        return (gpu_data.of_stated_size(chosen, other),)
    if len(chosen.sizes_gb) > 1 and size:
        nearest = min(chosen.sizes_gb, key=lambda s: abs(s - size))
        return (gpu_data.with_size(chosen, nearest),)
    return (chosen.device, *same)


def _several(entry: gpu_data.Entry, size_gb: int, count: int | None) -> bool:
    """Whether a size is that of several cards together, or of a card whose two dies are listed one by one."""
    times = {count, 2 if "one of two" in entry.device.name else None} - {None}
    return any(abs(size_gb - n * size) <= 0.05 * size_gb for n in times for size in entry.sizes_gb if n)


def _stated_size(text: str, core: _Core, context: _Context) -> None:
    """Take a size right behind the name that no variant is sold with; "64GB RAM" and "12 GB free" are none."""
    found = w.RE["own_size"].match(text, context.end)
    if context.size_gb is not None or core.strength == "slice" or found is None:
        return
    size = int(found[1])
    largest = max(size for variant in core.variants for size in variant.entry.sizes_gb)
    if size in w.BOX_SIZES_GB and size <= 2 * largest and not w.RE["not_its_size"].match(text, found.end()):
        context.other_size_gb, context.end = size, found.end()
        context.evidence += 1


def _another_product(text: str, core: _Core, context: _Context, attached: tuple[str, ...]) -> bool:
    """Whether a word behind the name makes it a product that the catalogue does not have."""
    suffix = w.UNKNOWN_VARIANT.get(core.variants[0].entry.device.vendor)
    if suffix is None:
        return False
    known = core.vocabulary | {"pcie"}
    if any(suffix.fullmatch(word) and w.SAME.get(word, word) not in known for word in attached):
        return True
    return suffix.match(text, context.end) is not None


def _mention(
    text: str, start: int, end: int, token: str, *, strict: bool, capacity_bytes: int | None
) -> GpuMention | None:
    glued = None if token in _cores() else _glued(token)
    name, attached, count = glued or (token, (), None)
    core = _cores()[name]
    context = _Context(start, end, set(), count=count, evidence=1 if count else 0)
    for word in attached:
        if word[0] == "x" and word[1:].isdecimal():
            context.count = int(word[1:])
        _take_word(word, core, context)
    _read_right(text, core, context)
    if _another_product(text, core, context, attached):
        return None
    _stated_size(text, core, context)
    _read_left(text, core, context, plural="s" in attached)
    if core.strength != "slice" and w.RE["slice_follows"].match(text, context.end):
        return None
    if strict and not _plausible(text, start, end, core, context):
        return None
    devices = _resolve(core, context, capacity_bytes)
    if not devices or (strict and not context.size_gb and devices[0].name.startswith(_families())):
        return None
    weight = {"slice": 4, "strong": 3, "cased": 2, "number": 1}.get(core.strength, 0)
    return GpuMention(
        device=devices[0],
        start=context.start,
        end=context.end,
        text=text[context.start : context.end],
        count=context.count,
        certainty=context.evidence + weight,
        candidates=devices,
    )


def scan(text: str, *, strict: bool, capacity_bytes: int | None = None) -> list[GpuMention]:
    """Mentions in order of place, none overlapping another. ``strict`` asks for context around ambiguous tokens."""
    found: list[GpuMention] = []
    reached = 0
    for start, end, token in occurrences(lowered(text), w.RE["token"], _known):
        if start < reached:
            continue
        mention = _mention(text, start, end, token, strict=strict, capacity_bytes=capacity_bytes)
        if mention is not None and (mention.start >= reached or _is_family(found[-1])):
            found.append(mention)
            reached = mention.end
    return [one for one in found if not _is_family(one)] or found


def _is_family(mention: GpuMention) -> bool:
    """Whether the name is that of machines, not of a chip or a card."""
    return mention.device.name.startswith(_families())


@cache
def _families() -> tuple[str, ...]:
    return tuple(entry.device.name for entry in gpu_data.entries() if entry.raw.get("family"))


def _known(token: str) -> bool:
    return token in _cores() or (not token.isdigit() and not token.isalpha() and _glued(token) is not None)
