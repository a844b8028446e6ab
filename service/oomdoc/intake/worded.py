"""Settings that words name: the method, the sharding, formats of weights and of the KV cache, optimizers."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from oomdoc.intake.named_runs import ROWS, Alternative, Mention
from oomkb.lazy import compiled
from oomkb.memory.vocabulary import VOCABULARY

_PAUSE: Final = compiled(r"[?？。,，;；、\n]")
_NEAR: Final = 24
"""Characters around a format in which the cache is named that holds it."""
CACHED: Final = {"none": "bf16"}
"""Formats of a KV cache that are called otherwise than those of weights."""


def worded(text: str) -> dict[str, list[Mention]]:
    """By field: the words that set it, and bare values behind one ("ZeRO-2 or 3")."""
    by_field: dict[str, list[Mention]] = {}
    for name, pattern in ROWS.group("choice").items():
        field, _, value = name.partition(":")
        for match in pattern.finditer(text):
            if field == "quant" and _of_optimizer(text, *match.span()):
                continue
            cached = field == "quant" and of_cache(text, *match.span())
            fields = {"serving.kv_dtype": CACHED.get(value, value)} if cached else {field: value}
            mentions = by_field.setdefault(next(iter(fields)), [])
            mentions.append((*match.span(), Alternative(match[0], fields)))
            other = ROWS["other_stage"].match(text, match.end()) if value.startswith("zero") else None
            if other is not None:
                named = Alternative(f"ZeRO-{other['stage']}", {field: f"zero{other['stage']}"})
                mentions.append((*other.span("stage"), named))
    taken = [m[:2] for m in by_field.get("optimizer", ())]
    optimizers, words = _optimizers()
    for match in optimizers.finditer(text):
        if not any(start < match.end() and match.start() < end for start, end in taken):
            named = Alternative(match[0], {"optimizer": words[re.sub(r"[-_ .]", "", match[0].lower())]})
            by_field.setdefault("optimizer", []).append((*match.span(), named))
    return by_field


def _of_optimizer(text: str, start: int, end: int) -> bool:
    """Whether bits are those of an optimizer's states: ``8-bit AdamW``."""
    before, behind = ROWS["optimizer_before"], ROWS["optimizer_behind"]
    return before.search(text, max(0, start - _NEAR), start) is not None or behind.match(text, end) is not None


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
