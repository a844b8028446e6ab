"""Which commands of a script stand in an arm of ``if`` or ``case``: whether these are run, nobody knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from oomdoc.intake.configs.forms.words import Word

_MAX_NESTED: Final = 40
_ENDS: Final = {"if": re.compile(r"\bfi\b"), "case": re.compile(r"\besac\b")}


class Branches:
    """How many arms surround a place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._depth = 0
        self._last: dict[str, int] = {}

    @property
    def runs(self) -> bool:
        """Whether this place is run for sure."""
        return not self._depth

    def command(self, words: Sequence[Word]) -> None:
        """Take note of a command that has ended."""
        first = words[0].text if words else ""
        if first in _ENDS and self._depth < _MAX_NESTED and self._ends_after(first, words[-1].end):
            self._depth += 1
        elif first == "esac":
            self.close()

    def close(self) -> None:
        """Take note of the end of the innermost ``if`` or ``case``."""
        self._depth = max(0, self._depth - 1)

    def _ends_after(self, first: str, at: int) -> bool:
        """Whether what ``first`` begins ends anywhere behind a place; the text is searched once for each."""
        if first not in self._last:
            self._last[first] = max((found.start() for found in _ENDS[first].finditer(self.text)), default=-1)
        return self._last[first] >= at
