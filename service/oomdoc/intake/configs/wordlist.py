"""Sets of names, written as text."""

from __future__ import annotations

__all__ = ["words"]


def words(text: str) -> frozenset[str]:
    """The names in a text, apart by blanks."""
    return frozenset(text.split())
