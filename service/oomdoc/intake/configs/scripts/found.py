"""One thing read off a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Found"]


@dataclass(frozen=True, slots=True)
class Found:
    """A fact's name and value, and where it stands in the whole text (a character)."""

    name: str
    value: Any
    offset: int
    confidence: float = 1.0
