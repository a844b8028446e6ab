"""Finding cards in text: a token names the core, the words around it select the variant.

Linear: one pass over word tokens with a dictionary look-up each; only around a hit is the context read, from
a window of fixed size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal

from oomkb.catalog import gpu_data
from oomkb.memory.device import Device
from oomkb.units import GIB

__all__ = ["GpuMention", "scan"]

_TOKEN: Final = re.compile(r"[0-9]g\.[0-9]{1,3}gb|[a-z0-9]{2,40}", re.I | re.A)
_GAP: Final = re.compile(r"[ \t\-_/()（）\[\],，:：+|®™\"']{0,3}")
_WORD: Final = re.compile(
    r"[0-9]{1,4}(?:\.[0-9]{1,2})?[ -]?gi?b?(?![a-z0-9])|[a-z0-9]{1,16}|昇腾|华为|英伟达|苹果", re.I | re.A
)
_BEFORE: Final = re.compile(
    r"(?:([0-9]{1,3}(?:\.[0-9]{1,2})?[ -]?gi?b?)|([a-z0-9]{1,16})|(昇腾|华为|英伟达|苹果))[ \t\-_/()（）\[\],，:：|的®™]{0,3}\Z",
    re.I | re.A,
)
_SIZE: Final = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,2})?)[ -]?gi?b?\Z", re.I | re.A)
_COUNT_BEFORE: Final = re.compile(
    r"(?<![0-9.a-z])([0-9]{1,4}|[一两二双三四五六七八九十单]) ?(?:[x×*✕] ?|张|卡|块|片|个|台|枚|gpus? (?:of )?)\s?\Z",
    re.I,
)
_COUNT_AFTER: Final = re.compile(r"[)）]? ?[x×*✕] ?([0-9]{1,4})(?![0-9a-z.])", re.I)
_NUMERALS: Final = {"单": 1, "一": 1, "两": 2, "二": 2, "双": 2} | dict(
    zip("三四五六七八九十", range(3, 11), strict=True)
)
_BARE_COUNT: Final = re.compile(r"(?<![0-9.a-z:/=-])([0-9]{1,3}) \Z", re.I)
_GLUED_HEAD: Final = re.compile(
    r"(?:([1-9][0-9]{0,2})x)?((?:nvidia|geforce|tesla|quadro|rtx|gtx|rx|titan|ascend|atlas|apple|amd|intel|arc|radeon|instinct|jetson|nv|huawei|hygon|tpu)*)"
)
_GLUED_TAIL: Final = re.compile(
    r"ti|super|laptop|mobile|maxq|ada|max|pro|ultra|sxm[0-9]?|pcie|nvl|hbm[0-9]?e?|gpus?|x[0-9]{1,2}|[0-9]{1,3}gi?b?|[sdxm]"
)
_NOT_A_CARD: Final = re.compile(
    r"\s?(?:[kmgt]i?b\b|[mu]?s\b|%|tokens?\b|steps?\b|iters?\b|it\b|samples?\b|rows?\b|lines?\b|epochs?\b|chars?\b|words?\b|px\b|[/.,:×x*] ?[0-9]|=)",
    re.I,
)
_INTRODUCES: Final = re.compile(
    r"(?:(?:\b(?:a|an|the|on|one|my|our|single|with|using|use|uses|used|of|dual|two|three|four|six|eight|is|for|have|has|and|or|vs|gpu|gpus|card|device|per|from|to|rent|into|local)|[×x*])[ \t:(]{1,2}"
    r"|[\u4e00-\u9fff：，。？、（(][ \t]?)\Z",
    re.I,
)
_SLICE: Final = re.compile(r"[0-9]g\.[0-9]{1,3}gb\Z")
_SLICE_FOLLOWS: Final = re.compile(r"[ \t\-_/(:]{0,3}(?:mig[ \t\-_:]{0,2})?[0-9]g\.[0-9]{1,3}gb", re.I)
_FRACTION_FOLLOWS: Final = re.compile(r"\.[0-9]")
_ABOUT_GPUS: Final = re.compile(
    r"gpu|cuda|vram|\boom\b|out of memory|显存|显卡|\bgi?b\b|colab|kaggle|nvidia|tesla|训练|推理|fine-?tun", re.I
)
_ABOUT_MACS: Final = re.compile(r"\bmac|\bmps\b|metal\b|apple|苹果|芯片|\bchip|unified|mlx", re.I)
_VENDOR_WORDS: Final = frozenset(
    "nvidia geforce tesla quadro rtx gtx titan radeon rx instinct amd ascend huawei intel arc apple jetson agx google cloud"
    " habana atlas npu mac macbook gpu graphics card cuda 昇腾 华为 英伟达 苹果 tensorcore data center".split()
)
_NEUTRAL: Final = frozenset(
    "gpu gpus graphics tensor core cores card cards vram memory generation edition with each mig nvidia chip device x1 s".split()
)
_CARD_WORDS: Final = frozenset("gpu gpus card cards".split())
_SAME: Final = {
    "昇腾": "ascend",
    "华为": "huawei",
    "英伟达": "nvidia",
    "苹果": "apple",
    "mobile": "laptop",
    "maxq": "laptop",
    "sxm5": "sxm",
    "hbm3e": "hbm3e",
}

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
    count: int | None = None
    evidence: int = 0


def _strength(core: str, vendor: str) -> Strength:
    if core.isdigit():
        return "number"
    if _SLICE.match(core):
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


@lru_cache(maxsize=8192)
def _glued(token: str) -> tuple[str, tuple[str, ...], int | None] | None:
    """``8xrtx3090ti`` as (core ``3090``, (``rtx``, ``ti``), 8), or ``None``."""
    head = _GLUED_HEAD.match(token)
    assert head is not None  # every part is optional
    rest = token[head.end() :]
    for length in range(len(rest), 1, -1):
        core = rest[:length]
        if core not in _cores():
            continue
        words = _tail(rest[length:])
        if words is not None and (head.end() or words or length == len(token)):
            prefix = [w for w in _VENDOR_WORDS if w in head[2]]
            return core, (*prefix, *words), int(head[1]) if head[1] else None
    return None


def _tail(text: str) -> tuple[str, ...] | None:
    words: list[str] = []
    at = 0
    while at < len(text):
        found = _GLUED_TAIL.match(text, at)
        if found is None:
            return None
        words.append(found[0])
        at = found.end()
    return tuple(words)


def _take_word(word: str, core: _Core, context: _Context) -> bool:
    word = _SAME.get(word, word)
    if word in core.vocabulary:
        context.words.add(word)
        context.evidence += 1
        return True
    if word in _VENDOR_WORDS:
        context.evidence += 1
        return True
    if word in _NEUTRAL:
        context.evidence += word in _CARD_WORDS
        return True
    size = _SIZE.match(word)
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
        count = _COUNT_AFTER.match(text, reached)
        if count and context.count is None:
            context.count, reached = int(count[1]), count.end()
            context.evidence += 1
            context.end = reached
            continue
        gap = _GAP.match(text, reached)
        at = gap.end() if gap else reached
        word = _WORD.match(text, at)
        if word is None or not _take_word(word[0].lower(), core, context):
            return
        reached = word.end()
        if word[0].lower() not in _NEUTRAL:
            context.end = reached
            if text[at - 1 : at] in ("(", "（") and text[reached : reached + 1] in (")", "）"):
                context.end = reached + 1


def _read_left(text: str, core: _Core, context: _Context) -> None:
    for _ in range(6):
        window = text[max(0, context.start - 24) : context.start]
        offset = context.start - len(window)
        count = _COUNT_BEFORE.search(window) or (
            _BARE_COUNT.search(window) if core.strength != "number" or context.evidence else None
        )
        if count and context.count is None:
            context.count = _NUMERALS.get(count[1]) or int(count[1])
            context.start = offset + count.start()
            context.evidence += 1
            return
        word = _BEFORE.search(window)
        if word is None or "\n" in word[0] or not _take_word((word[1] or word[2] or word[3]).lower(), core, context):
            return
        context.start = offset + word.start()


def _plausible(text: str, start: int, end: int, core: _Core, context: _Context) -> bool:
    """Whether a bare core token in prose means a card."""
    if core.strength in ("strong", "slice"):
        return True
    if _FRACTION_FOLLOWS.match(text, end):
        return False
    if core.strength == "apple":
        return bool(_ABOUT_MACS.search(text, max(0, start - 80), end + 80))
    if context.evidence:
        return True
    before = text[max(0, start - 12) : start]
    introduced = start == 0 or before.endswith("\n") or bool(_INTRODUCES.search(before))
    if core.strength == "number":
        return introduced and not _NOT_A_CARD.match(text, end) and not (start == 0 and end == len(text))
    if core.strength == "cased":
        return text[start].isupper() or introduced
    upper = text[start].isupper()
    near = bool(_ABOUT_GPUS.search(text, max(0, start - 60), end + 60))
    return upper and (near or (introduced and start > 0 and not before.endswith("\n")))


def _rank(variant: _Variant, context: _Context, capacity_bytes: int | None) -> tuple[int, float, float, int]:
    sizes = variant.entry.sizes_gb
    reported = variant.entry.device.capacity_bytes / GIB
    size_gap = min(abs(context.size_gb - s) for s in (*sizes, reported)) if context.size_gb is not None else 0.0
    total_gap = 0.0
    if capacity_bytes is not None:
        totals = (variant.entry.device.capacity_bytes, *variant.entry.device.observed_bytes)
        gap = min(abs(t - capacity_bytes) for t in totals)
        total_gap = min(gap, min(abs(s * GIB - capacity_bytes) for s in sizes)) / GIB
        total_gap = 0.0 if total_gap < 1 else total_gap
    return (len(variant.needs), -size_gap, -total_gap, len(variant.entry.words & context.words))


def _resolve(core: _Core, context: _Context, capacity_bytes: int | None) -> tuple[Device, ...]:
    eligible = [v for v in core.variants if v.needs <= context.words]
    if not eligible:
        return ()
    ranks = [_rank(v, context, capacity_bytes) for v in eligible]
    best = max(ranks)
    chosen = eligible[ranks.index(best)].entry
    same = tuple(v.entry.device for v, r in zip(eligible, ranks, strict=True) if r == best and v.entry is not chosen)
    size = context.size_gb if context.size_gb is not None else (capacity_bytes or 0) / GIB
    if len(chosen.sizes_gb) > 1 and size:
        nearest = min(chosen.sizes_gb, key=lambda s: abs(s - size))
        return (gpu_data.with_size(chosen, nearest),)
    return (chosen.device, *same)


def _mention(
    text: str, start: int, end: int, token: str, *, strict: bool, capacity_bytes: int | None
) -> GpuMention | None:
    glued = None if token in _cores() else _glued(token)
    name, attached, count = glued or (token, (), None)
    core = _cores()[name]
    context = _Context(start, end, set(), count=count, evidence=1 if count else 0)
    for word in attached:
        if word[0] == "x" and word[1:].isdigit():
            context.count = int(word[1:])
        _take_word(word, core, context)
    _read_right(text, core, context)
    _read_left(text, core, context)
    if core.strength != "slice" and _SLICE_FOLLOWS.match(text, context.end):
        return None
    if strict and not _plausible(text, start, end, core, context):
        return None
    devices = _resolve(core, context, capacity_bytes)
    if not devices:
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
    for start, end, token in _hits(text):
        if start < reached:
            continue
        mention = _mention(text, start, end, token, strict=strict, capacity_bytes=capacity_bytes)
        if mention is not None and mention.start >= reached:
            found.append(mention)
            reached = mention.end
    return found


def _hits(text: str) -> Iterator[tuple[int, int, str]]:
    cores = _cores()
    for match in _TOKEN.finditer(text):
        token = match[0].lower()
        if token in cores or (not token.isdigit() and not token.isalpha() and _glued(token) is not None):
            yield match.start(), match.end(), token
