"""Many expressions over many lines, each tried only where it could match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from oomdoc.intake.sieve.expression import Expression
from oomdoc.intake.sieve.vocabulary import Vocabulary

if TYPE_CHECKING:
    import re

    from oomdoc.intake.lines import Line

Row = TypeVar("Row")


class _Lowered(Protocol):
    @property
    def low(self) -> str: ...


Item = TypeVar("Item", bound=_Lowered)


def candidates(expression: Expression, lines: Iterable[Item], words: Vocabulary) -> Iterator[Item]:
    """The lines in which the expression could match."""
    literals = expression.literals
    if not literals:
        yield from lines
        return
    held = [literal for literal in literals if words.may_hold(literal)]
    if held:
        yield from (line for line in lines if any(literal in line.low for literal in held))


def found_in(expression: Expression, lines: Iterable[Line], words: Vocabulary) -> Iterator[tuple[Line, re.Match[str]]]:
    """The lines, as they stand, that the expression matches, each with its first match."""
    for line in candidates(expression, lines, words):
        if (found := expression.search(line.raw)) is not None:
            yield line, found


class Sieve(Generic[Row]):
    """Rows, each with literals of which a line must hold one for the row to say something; their order is kept."""

    def __init__(self, rows: Iterable[tuple[Sequence[str], Row]]) -> None:
        self._rows = [(tuple(literals), row) for literals, row in rows]

    def alive(self, words: Vocabulary) -> list[tuple[tuple[str, ...], Row]]:
        """The rows that can match somewhere in the text, each with those of its literals that can be in it.

        A row without literals can match anywhere.
        """
        if words.all:
            return self._rows
        held = ((tuple(filter(words.may_hold, literals)), bool(literals), row) for literals, row in self._rows)
        return [(found, row) for found, has_literals, row in held if found or not has_literals]

    def over(self, lines: Iterable[Item], words: Vocabulary) -> Iterator[tuple[int, Item, list[Row]]]:
        """Every line that a row could match, with its index and those rows."""
        rows = self.alive(words)
        if not rows:
            return
        for index, line in enumerate(lines):
            low = line.low
            tried = []
            for literals, row in rows:
                if not literals:
                    tried.append(row)
                    continue
                for literal in literals:
                    if literal in low:
                        tried.append(row)
                        break
            if tried:
                yield index, line, tried
