"""What the store takes and gives, and how it refuses."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError


class StoreDown(OomdocError):
    """The database does not answer, or its disk is full; answers go on without it."""


class Conflict(OomdocError):
    """Somebody else wrote first."""


@dataclass(frozen=True, slots=True)
class DiagnosisRow:
    """A diagnosis to keep; ``result`` is its JSON text, with or without the id."""

    id: str
    language: str
    input_masked: str
    result: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The answer that belongs to an idempotency key."""

    status: int
    response: str


@dataclass(frozen=True, slots=True)
class StoredDiagnosis:
    """A diagnosis as it was given."""

    id: str
    created_at: datetime
    language: str
    input_masked: str
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A submitted case record; ``sequence`` counts up, so that replicas fetch only what is new."""

    sequence: int
    id: str
    yaml: str
