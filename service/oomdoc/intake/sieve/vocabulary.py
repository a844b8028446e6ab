"""The words of a text, each once, as something that answers quickly whether a literal can be in it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

_DIGITS: Final = str.maketrans("", "", "0123456789")
_GRAM: Final = 3
"""Characters of the pieces by which most literals are ruled out."""
_MAX_CHARACTERS: Final = 200_000
"""Characters of different words beyond which nothing is ruled out: that is no text that anybody wrote."""


@cache
def _probes_of(literal: str) -> tuple[str, ...]:
    """The words of a literal without digits, the longest first: what is looked for."""
    return tuple(sorted(literal.translate(_DIGITS).split(), key=len, reverse=True))


class Vocabulary:
    """The words of some lines, in lower case, without digits (which make every line of a log another one)."""

    __slots__ = ("all", "grams", "text")

    def __init__(self, lowered: Iterable[str]) -> None:
        joined = "\n".join(lowered).encode("utf-8", "surrogatepass").translate(None, b"0123456789")
        text = " ".join(set(joined.decode("utf-8", "surrogatepass").split()))
        self.all = len(text) > _MAX_CHARACTERS
        """Whether there are so many words that every literal may be among them."""
        self.text = "" if self.all else text
        self.grams = frozenset(map("".join, zip(self.text, self.text[1:], self.text[2:], strict=False)))

    def may_hold(self, literal: str) -> bool:
        """False only where the literal (in lower case) is in none of the lines."""
        if self.all:
            return True
        for probe in _probes_of(literal):
            if len(probe) >= _GRAM and (probe[:_GRAM] not in self.grams or probe[-_GRAM:] not in self.grams):
                return False
            if probe not in self.text:
                return False
        return True
