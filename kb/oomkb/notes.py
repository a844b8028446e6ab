"""What the knowledge base has to tell people beside its numbers: a key of the words catalogues and its values.

The words themselves are the service's (``oomdoc.report.words``); nothing here speaks a language.
"""

from __future__ import annotations

from typing import Any

from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """``key`` is ``area.name``; ``values`` fill its placeholders, sizes in bytes under names ending in ``_bytes``."""

    key: str
    values: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """The key and its values, for logs and tests."""
        return " ".join((self.key, *(f"{name}={value!r}" for name, value in self.values)))


def note(key: str, /, **values: Any) -> Note:
    """A note with its values by name."""
    return Note(key, tuple(values.items()))
