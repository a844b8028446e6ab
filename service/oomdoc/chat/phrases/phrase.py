"""One way of saying that a field of the job should have a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Phrase", "says"]


@dataclass(frozen=True, slots=True)
class Phrase:
    """``value`` is a constant, or ``None`` where group ``n`` (or ``n2``) holds the number. ``also`` sets further fields."""

    field: str
    pattern: re.Pattern[str]
    value: Any = None
    convert: Callable[[float], Any] = int
    also: tuple[tuple[str, Any], ...] = ()


def says(field: str, pattern: str, value: Any, also: tuple[tuple[str, Any], ...] = ()) -> Phrase:
    """A phrase of words alone."""
    return Phrase(field, re.compile(rf"(?i)(?:{pattern})"), value=value, also=also)
