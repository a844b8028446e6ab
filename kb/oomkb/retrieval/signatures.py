"""Signatures: words that give a case away. Rare ones decide; one that many cases share says little."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from oomkb.records.case import Case
from oomkb.retrieval.text import MAX_CHARS

__all__ = ["matched"]

_BLANKS: Final = re.compile(r"\s+")


def matched(text: str, cases: Sequence[Case]) -> dict[int, tuple[float, str]]:
    """Case number -> (how much it decides, 0..1; the signature), for the cases that have one in the text.

    1 for a signature of one case alone, falling with the logarithm of how many cases have it.
    """
    raw = text[:MAX_CHARS]
    plain = _plain(raw)
    holders: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        for signature in case.signatures:
            held = _plain(signature.text) in plain if signature.text else _compiled(signature.regex).search(raw)
            if held:
                holders.setdefault(signature.text or signature.regex, []).append(number)
    found: dict[int, tuple[float, str]] = {}
    for words, numbers in sorted(holders.items()):
        decides = 1 - math.log(len(set(numbers))) / math.log(max(2, len(cases)))
        for number in numbers:
            found[number] = max(found.get(number, (0.0, "")), (decides, words))
    return found


@lru_cache(maxsize=65_536)
def _plain(text: str) -> str:
    return _BLANKS.sub(" ", text.lower()).strip()


@lru_cache(maxsize=65_536)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
