"""An expression of many alternatives, of which only those are tried that could match."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache
from threading import Lock
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
_LOCK: Final = Lock()
_TEXTS: Final = 16
_BLOCKS: Final = 8


class _Blocks:
    """Where the blocks end in which alternatives are asked for together: those that were there when one was needed.

    Rules make most of them when they are imported and a few when they first run; a table of all that were made anew for
    each of these took a fifth of a second of a cold start. Several blocks become one again, as each is asked apart.
    """

    ends: tuple[int, ...] = ()

    @classmethod
    def of(cls, number: int) -> tuple[int, int]:
        """Beginning and end of the block that an alternative lies in."""
        ends = cls.ends
        if not ends or number >= ends[-1]:
            with _LOCK:
                ends = cls.ends = (*(ends if len(ends) < _BLOCKS else ()), len(_PARTS))
        at = bisect_right(ends, number)
        return (ends[at - 1] if at else 0), ends[at]


@lru_cache(maxsize=2 * _BLOCKS)
def _literals(start: int, end: int) -> Literals:
    return Literals([part.literals for part in _PARTS[start:end]])


@lru_cache(maxsize=_TEXTS)
def _words(lowered: str) -> Vocabulary:
    return Vocabulary((lowered,))


@lru_cache(maxsize=_TEXTS * _BLOCKS)
def _possible(lowered: str, start: int, end: int) -> frozenset[int]:
    """Numbers of a block's alternatives of which a literal can be in the text: asked once for all rules."""
    words = _words(lowered)
    if words.all:
        return frozenset(range(start, end))
    literals = _literals(start, end)
    return frozenset(start + number for number in literals.without.union(literals.held(words)))


class Alternatives:
    """Stands for ``re.compile(pattern)`` over texts in lower case."""

    __slots__ = ("_first", "_numbers", "parts")

    def __init__(self, pattern: str) -> None:
        made = [Expression(part) for part in split(pattern)]
        with _LOCK:  # so that they lie beside each other, in one block
            self._first = len(_PARTS)
            _PARTS.extend(made)
        self.parts = dict(enumerate(made, self._first))
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
        possible = self._numbers & _possible(lowered, *_Blocks.of(self._first))
        if possible:
            for number, part in self.parts.items():
                if number in possible and part.may_match(lowered):
                    yield part


@cache
def alternatives(pattern: str) -> Alternatives:
    """The same one for the same pattern: patterns are constants of rules, never somebody's text."""
    return Alternatives(pattern)
