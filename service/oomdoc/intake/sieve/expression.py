"""A regular expression that knows which literals its matches hold, and is compiled when it is first tried."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from oomdoc.intake.sieve.derive import literals_of
from oomkb.lazy import compiled

TABLE: Final = Path(__file__).with_name("literals.json")
"""Expression (:func:`key_of`) -> literals, one of which each match holds (``python -m oomdoc.intake.sieve``)."""
_END: Final = 1 << 62


def key_of(pattern: str, flags: int) -> str:
    """The name of an expression in the table of literals."""
    return blake2b(f"{flags}:{pattern}".encode(), digest_size=8).hexdigest()


@cache
def _table() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(TABLE.read_bytes())
    return found


class Expression:
    """Stands for ``re.compile(pattern, flags)``.

    ``literals`` (lower case) are such that whatever matches holds one of them in lower case; empty where nothing is
    known. They stand in a table that ``python -m oomdoc.intake.sieve`` writes; what is not in it is worked out.
    """

    __slots__ = ("_compiled", "flags", "literals", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self.flags = int(flags)
        known = _table().get(key_of(pattern, self.flags))
        self.literals: tuple[str, ...] = literals_of(pattern, self.flags) if known is None else tuple(known)
        self._compiled: re.Pattern[str] | None = None

    def compiled(self) -> re.Pattern[str]:
        """The compiled expression."""
        if self._compiled is None:
            self._compiled = compiled(self.pattern, self.flags)
        return self._compiled

    def may_match(self, lowered: str) -> bool:
        """Whether a text (given in lower case) holds one of the literals."""
        for literal in self.literals:
            if literal in lowered:
                return True
        return not self.literals

    def search(self, text: str, start: int = 0, end: int = _END) -> re.Match[str] | None:
        """As of a compiled expression."""
        return (self._compiled or self.compiled()).search(text, start, min(end, len(text)))

    def match(self, text: str, start: int = 0, end: int = _END) -> re.Match[str] | None:
        """As of a compiled expression."""
        return (self._compiled or self.compiled()).match(text, start, min(end, len(text)))

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """As of a compiled expression."""
        return (self._compiled or self.compiled()).finditer(text)
