"""Errors name the exact place and the next step; every interface prints the same two lines.

What the knowledge base has to tell people beside its numbers: a key of the words catalogues and its values. The words
themselves are the service's (``oomdoc.report.words``); nothing here speaks a language.
"""

from __future__ import annotations

from typing import Any, Final

from oomkb.dataclass import dataclass

ARITHMETIC_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What arithmetic on somebody's numbers may raise where they are odder than any check foresaw."""


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


class OomdocError(Exception):
    """Anything a person can act on.

    :param message: what is wrong.
    :param where: the exact place: ``job.lora.r``, ``train.yaml:12``, ``cases/logits/x.yaml: fix[1].saves``.
    :param hint: the next step.
    :param note: the same in no language yet, problem and next step together, for answers in the asker's.
    """

    exit_status = 2

    def __init__(self, message: str, *, where: str = "", hint: str = "", note: Note | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.note = note

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        step = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{step}"


class JobError(OomdocError):
    """A job document that describes no possible run; ``where`` is the field."""


class InputError(OomdocError):
    """Input that cannot be read: too large, binary, broken YAML."""


class CatalogError(OomdocError):
    """A GPU or model that the catalogue does not hold, or an entry that is wrong."""


class RecordError(OomdocError):
    """A case record that breaks the schema; ``where`` is file and field."""


class IndexDamaged(OomdocError):
    """A retrieval index that is stale, truncated or of another version; rebuilt where possible."""
