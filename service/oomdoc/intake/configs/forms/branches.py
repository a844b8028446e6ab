"""Which arms of ``if`` and ``case`` a script runs, as far as it says itself: without arguments, in a plain environment.

What an arm that is not run assigns is no value of the run; what one assigns of which nobody knows is none either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from oomdoc.intake.configs.forms.words import Variable, Word
from oomkb.kept import lazy

_MAX_NESTED: Final = 40
_PLAIN: Final = lazy(r"[\"']?\$\{?(?:([A-Za-z_]\w{0,80})(?::?-)?|([0-9#]))\}?[\"']?")
_GIVEN: Final = lazy(r"\$[1-9]")
"""What the script is given: without arguments, nothing."""
_ENDS: Final = {"if": re.compile(r"\bfi\b"), "case": re.compile(r"\besac\b")}
_NUMBER: Final = lazy(r"-?[0-9]{1,12}")
_COMPARED: Final = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-lt": lambda a, b: a < b,
    "-ge": lambda a, b: a >= b,
    "-le": lambda a, b: a <= b,
}


class Branches:
    """The arms that surround a place, from the outside in."""

    def __init__(self, text: str, variables: Mapping[str, Variable]) -> None:
        self.text, self.variables = text, variables
        self.doubtful: set[str] = set()
        """Variables that an arm sets of which nobody knows whether it is run."""
        self._arms: list[bool | None] = []
        self._before: list[bool | None] = []
        self._awaiting = False
        self._last: dict[str, int] = {}

    @property
    def runs(self) -> bool | None:
        """Whether this place is run; ``None`` where nobody knows."""
        return False if False in self._arms else None if None in self._arms else True

    def command(self, words: Sequence[Word]) -> None:
        """Take note of a command that has ended."""
        first = words[0].text if words else ""
        if first in _ENDS and len(self._arms) < _MAX_NESTED and self._ends_after(first, words[-1].end):
            self._open(self._holds(words[1:]) if first == "if" else None)
        elif first == "elif" and self._arms:
            self._next(self._holds(words[1:]))
        elif first == "esac":
            self._close()
        elif self._awaiting and words:
            self._arms[-1] = None  # a condition of several parts

    def keyword(self, word: str) -> None:
        """Take note of a word of the shell's own that begins a command."""
        if word == "then":
            self._awaiting = False
        elif word == "else" and self._arms:
            self._next(True)
            self._awaiting = False
        elif word == "fi":
            self._close()

    def _ends_after(self, first: str, at: int) -> bool:
        """Whether what ``first`` begins ends anywhere behind a place; the text is searched once for each."""
        if first not in self._last:
            self._last[first] = max((found.start() for found in _ENDS[first].finditer(self.text)), default=-1)
        return self._last[first] >= at

    def _open(self, holds: bool | None) -> None:
        self._arms.append(holds)
        self._before.append(False)
        self._awaiting = holds is not None

    def _next(self, holds: bool | None) -> None:
        earlier, last = self._before[-1], self._arms[-1]
        taken = True if True in (earlier, last) else None if None in (earlier, last) else False
        self._before[-1] = taken
        self._arms[-1] = False if taken or holds is False else None if taken is None else holds
        self._awaiting = self._arms[-1] is True

    def _close(self) -> None:
        if self._arms:
            self._arms.pop()
            self._before.pop()
        self._awaiting = False

    def _holds(self, words: Sequence[Word]) -> bool | None:
        """The value of ``[ $A = b ]``, ``[ -z "$A" ]`` or ``[ $A -gt 1 ]``."""
        texts = [word.text for word in words]
        if len(texts) < 4 or texts[0] not in ("[", "[[") or texts[-1] not in ("]", "]]"):
            return None
        inner = words[1:-1]
        if len(inner) == 2 and inner[0].text in ("-z", "-n"):
            empty = self._is_empty(inner[1])
            return None if empty is None else empty == (inner[0].text == "-z")
        if len(inner) != 3:
            return None
        left, right = self._value(inner[0]), self._value(inner[2])
        sign = inner[1].text
        if right == "" and left is None and sign in ("=", "==", "!="):
            empty = self._is_empty(inner[0])
            return None if empty is None else empty == (sign != "!=")
        if left is None or right is None:
            return None
        if sign in ("=", "=="):
            return left == right if "*" not in right else None
        if sign == "!=":
            return left != right if "*" not in right else None
        if sign in _COMPARED and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
            return bool(_COMPARED[sign](int(left), int(right)))
        return None

    def _value(self, word: Word) -> str | None:
        if self.text[word.start : word.end].strip("\"'") == "$#":
            return "0"
        return word.text if word.resolved else None

    def _is_empty(self, word: Word) -> bool | None:
        if word.resolved:
            return not word.text
        plain = _PLAIN.fullmatch(self.text, word.start, word.end)
        if plain is None or plain[1] in self.doubtful:
            return None
        known = self.variables.get(plain[1]) if plain[1] else None
        return True if known is None or _GIVEN.fullmatch(known.word.text) else None
