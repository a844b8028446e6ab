"""Many expressions over many lines, each tried only where it could match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from oomdoc.intake.sieve.expression import Expression
from oomdoc.intake.sieve.vocabulary import GRAM, Vocabulary, probes_of

__all__ = ["Sieve", "candidates"]

Row = TypeVar("Row")
_Hit = tuple[int, str, tuple[str, ...]]
"""Number of a row, one of its literals, what is looked for in the vocabulary."""


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


class Sieve(Generic[Row]):
    """Rows, each with the expressions of which one must match for the row to say something; their order is kept."""

    def __init__(self, rows: Iterable[tuple[Sequence[Expression], Row]]) -> None:
        self._rows: list[tuple[tuple[str, ...], Row]] = []
        for expressions, row in rows:
            parts = [expression.literals for expression in expressions]
            self._rows.append((tuple(dict.fromkeys(lit for part in parts for lit in part)) if all(parts) else (), row))

    @cached_property
    def _index(self) -> tuple[dict[str, list[_Hit]], list[_Hit]]:
        """Literals by the first piece of what is looked for, and those too short for that."""
        by_gram: dict[str, list[_Hit]] = {}
        short: list[_Hit] = []
        for number, (literals, _) in enumerate(self._rows):
            for literal in literals:
                probes = probes_of(literal)
                first = probes[0] if probes else ""
                where = by_gram.setdefault(first[:GRAM], []) if len(first) >= GRAM else short
                where.append((number, literal, probes))
        return by_gram, short

    def alive(self, words: Vocabulary) -> list[tuple[tuple[str, ...], Row]]:
        """The rows that can match somewhere in the text, each with those of its literals that can be in it.

        A row without literals can match anywhere.
        """
        if words.all:
            return self._rows
        by_gram, short = self._index
        held: dict[int, list[str]] = {}
        tried = [hit for gram in by_gram.keys() & words.grams for hit in by_gram[gram]]
        for number, literal, probes in (*tried, *short):
            for probe in probes:
                if probe not in words.text:
                    break
            else:
                held.setdefault(number, []).append(literal)
        return [
            (tuple(held.get(number, ())), row)
            for number, (literals, row) in enumerate(self._rows)
            if not literals or number in held
        ]

    def over(self, lines: Iterable[Item], words: Vocabulary) -> Iterator[tuple[Item, list[Row]]]:
        """Every line that a row could match, with those rows."""
        rows = self.alive(words)
        if not rows:
            return
        for line in lines:
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
                yield line, tried
