"""A text with what its numbers are of: the words around a number, between two, and a signal at its place."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from oomdoc.evidence import Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.quantities.fields import around
from oomdoc.intake.quantities.reader import Quantity
from oomdoc.intake.sieve import Expression
from oomkb.kept import compiled

_ASIDE: Final = compiled("[(（]")


class NumberedText(NamedTuple):
    """Lines, joined by line breaks, and their numbers in order."""

    rows: Sequence[Line]
    text: str
    numbers: Sequence[Quantity]

    def words(self, at: int) -> tuple[str, str]:
        """What stands before and behind a number, up to the next number, a bracket or the end of its clause."""
        before, behind = around(self.text, self.numbers[at])
        gap = self.numbers[at].start - self.numbers[at - 1].end if at else len(before)
        rest = self.numbers[at + 1].start - self.numbers[at].end if at + 1 < len(self.numbers) else len(behind)
        return before[max(0, len(before) - gap) :], _ASIDE.split(behind[: max(0, rest)])[0]

    def says(self, expression: Expression, at: int) -> bool:
        """Whether the words around a number match an expression."""
        return any(expression.search(part) for part in self.words(at))

    def between(self, one: Quantity, other: Quantity) -> str:
        """The text between two numbers."""
        first, second = sorted((one, other), key=lambda q: q.start)
        return self.text[first.end : second.start]

    def signal(self, name: str, number: Quantity, **data: object) -> Signal:
        """A signal at the place of a number."""
        row = self.rows[self.text.count("\n", 0, number.start)]
        column = number.start - self.text.rfind("\n", 0, number.start)
        return Signal(name, row.span(column), MappingProxyType(data))
