"""Settings that are given but not in effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from oomdoc.evidence import Inactive, Source

if TYPE_CHECKING:
    from oomdoc.intake.configs.analysis import Doc
    from oomdoc.intake.configs.reading import Lines

__all__ = ["find_inactive"]


def find_inactive(docs: Sequence[Doc], lines: Lines, others: Sequence[Source]) -> Iterator[Inactive]:
    """Every setting of the documents that something keeps from being in effect."""
    for doc in docs:
        for entry in doc.entries:
            if entry.off and not entry.key.startswith("@"):
                yield Inactive(entry.key, f"inactive.{entry.off_reason}", lines.span(entry.key_span[0]))
