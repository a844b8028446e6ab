"""One thing wrong with a case file."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """``field`` is dotted (``fixes[1].changes``), or empty for the file as a whole; ``hint`` is the next step."""

    file: str
    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}: {self.field}" if self.field else self.file
        step = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.message}{step}"
