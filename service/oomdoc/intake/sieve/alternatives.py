"""An expression of many alternatives, of which only those are tried that could match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from oomdoc.intake.sieve.expression import Expression
from oomdoc.intake.sieve.vocabulary import Literals, Vocabulary

__all__ = ["Alternatives", "alternatives", "split"]

# Flags for the whole expression and references to groups tie the alternatives together.
_TIED: Final = re.compile(r"\(\?[aiLmsux]+\)|\\[1-9]|\(\?P=|\(\?\(")


def split(pattern: str) -> tuple[str, ...]:
    """The alternatives on the outermost level; the pattern itself where they cannot be taken apart."""
    if "|" not in pattern or _TIED.search(pattern):
        return (pattern,)
    return tuple(_parts(pattern))


def _parts(pattern: str) -> Iterator[str]:
    depth, start, at, members = 0, 0, 0, -1
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif members >= 0:
            # A bracket that comes first is a member of the class.
            members = -1 if character == "]" and at > members else members
        elif character == "[":
            members = at + 1 + (pattern[at + 1 : at + 2] == "^")
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            yield pattern[start:at]
            start = at + 1
        at += 1
    yield pattern[start:]


_PARTS: Final[list[Expression]] = []
"""Every alternative that there is, in the order in which they were made; their numbers are their places."""
_TEXTS: Final = 16


@lru_cache(maxsize=2)
def _literals(count: int) -> Literals:
    return Literals([part.literals for part in _PARTS[:count]])


@lru_cache(maxsize=_TEXTS)
def _possible(lowered: str, count: int) -> frozenset[int]:
    """Numbers of the first ``count`` alternatives of which a literal can be in the text: asked once for all rules."""
    words = Vocabulary((lowered,))
    if words.all:
        return frozenset(range(count))
    literals = _literals(count)
    return literals.without.union(literals.held(words))


class Alternatives:
    """Stands for ``re.compile(pattern)`` over texts in lower case."""

    __slots__ = ("_numbers", "parts")

    def __init__(self, pattern: str) -> None:
        self.parts: dict[int, Expression] = {}
        for part in split(pattern):
            self.parts[len(_PARTS)] = expression = Expression(part)
            _PARTS.append(expression)
        self._numbers = frozenset(self.parts)

    def search(self, lowered: str) -> re.Match[str] | None:
        """The first match, as the whole expression finds it: of those that begin there, the first alternative's."""
        first: re.Match[str] | None = None
        for part in self._tried(lowered):
            found = part.search(lowered)
            if found is not None and (first is None or found.start() < first.start()):
                first = found
        return first

    def last(self, lowered: str) -> re.Match[str] | None:
        """The match that begins last, of those that each alternative finds by itself."""
        last: re.Match[str] | None = None
        for part in self._tried(lowered):
            for found in part.finditer(lowered):
                if last is None or found.start() > last.start():
                    last = found
        return last

    def _tried(self, lowered: str) -> Iterator[Expression]:
        possible = self._numbers & _possible(lowered, len(_PARTS))
        if possible:
            for number, part in self.parts.items():
                if number in possible and part.may_match(lowered):
                    yield part


@cache
def alternatives(pattern: str) -> Alternatives:
    """The same one for the same pattern: patterns are constants of rules, never somebody's text."""
    return Alternatives(pattern)
