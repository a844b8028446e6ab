"""Signatures: words that give a case away. Rare ones decide; one that many cases share says little."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from oomkb.records.case import Case
from oomkb.retrieval.text import MAX_CHARS

_BLANKS: Final = re.compile(r"\s+")


def matched(text: str, cases: Sequence[Case]) -> dict[int, tuple[float, str]]:
    """Case number -> (how much it decides, 0..1; the signature), for the cases that have one in the text.

    1 for a signature of one case alone, falling with the logarithm of how many cases have it.
    """
    plain = _plain(text[:MAX_CHARS])
    holders: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        for signature in case.signatures:
            if _plain(signature.text) in plain:
                holders.setdefault(signature.text, []).append(number)
    found: dict[int, tuple[float, str]] = {}
    for words, numbers in sorted(holders.items()):
        decides = 1 - math.log(len(set(numbers))) / math.log(max(2, len(cases)))
        for number in numbers:
            found[number] = max(found.get(number, (0.0, "")), (decides, words))
    return found


@lru_cache(maxsize=65_536)
def _plain(text: str) -> str:
    return _BLANKS.sub(" ", text.lower()).strip()
