"""The numbers of a question as they are written, each with the words beside it; the rows are those of ``asked.tsv``."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.intake.numbers import number_of
from oomdoc.intake.worded import ROWS
from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WrittenNumber:
    """A number as a question writes it."""

    values: frozenset[float]
    """What it may mean: ``4k`` is 4,000 or 4,096."""
    phrase: str
    """It and the words beside it."""


def written_numbers(text: str) -> Iterator[WrittenNumber]:
    """The numbers of a text, each with the words beside it."""
    for found in ROWS["written"].finditer(text):
        unit = (found["unit"] or "").strip().lower()
        value = (
            float(number_of(found["number"].lower()))
            if not found["number"][:1].isdigit()
            else float(found["number"].replace(",", ""))
        )
        if (
            value < 2
            or ROWS["aside"].match(text, found.end("unit") if found["unit"] else found.end("number"))
            or ROWS["price"].search(text, max(0, found.start() - 2), found.start())
            or ROWS["before_aside"].search(text, 0, found.start("number"))
        ):
            continue
        scales = {"k": (1e3, 1024.0, 1.0), "m": (1e6, 2.0**20, 1.0), "t": (1024.0, 1000.0, 1.0)}.get(unit[:1], (1.0,))
        yield WrittenNumber(frozenset(value * scale for scale in scales), found["phrase"].strip())
