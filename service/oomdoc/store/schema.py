"""The tables. What a person pasted is stored masked only; a test reads every column back and looks for secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, MetaData, PrimaryKeyConstraint, String, Table, Text

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


METADATA = MetaData()

# SQLite counts only a plain INTEGER primary key up by itself; PostgreSQL gets 64 bits.
_SERIAL = BigInteger().with_variant(Integer, "sqlite")

diagnoses = Table(
    "diagnoses",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("language", String(8), nullable=False),
    Column("input_masked", Text, nullable=False),
    Column("result", Text, nullable=False),
    # Since revision 2 the texts are in ``contents``, once for all who pasted the same, and those two are empty.
    Column("content", String(64)),
    Index("diagnoses_created_at", "created_at"),
    Index("diagnoses_content", "content"),
)

contents = Table(
    "contents",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("used_at", DateTime(timezone=True), nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("input_masked", Text, nullable=False),
    Column("result", Text, nullable=False),
    Index("contents_used_at", "used_at"),
)

chats = Table(
    "chats",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    # Two replicas may answer the same chat: the later writer notices through the version and starts over.
    Column("version", Integer, nullable=False),
    Column("document", Text, nullable=False),
    Index("chats_updated_at", "updated_at"),
)

feedback = Table(
    "feedback",
    METADATA,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("diagnosis_id", String(32), nullable=False),
    Column("helpful", String(8), nullable=False),
    Column("cause", String(64)),
    Column("comment_masked", Text),
)

cases = Table(
    "cases",
    METADATA,
    Column("sequence", _SERIAL, primary_key=True, autoincrement=True),
    Column("id", String(200), nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("yaml", Text, nullable=False),
    # The name under which its submitter's key is counted; empty where none was needed.
    Column("owner", String(64), nullable=False, server_default=""),
)

events = Table(
    "events",
    METADATA,
    Column("platform", String(16), nullable=False),
    Column("event_id", String(200), nullable=False),
    Column("seen_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("platform", "event_id"),
    Index("events_seen_at", "seen_at"),
)

idempotency = Table(
    "idempotency",
    METADATA,
    Column("key", String(200), primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("body_sha256", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("response", Text, nullable=False),
    Index("idempotency_created_at", "created_at"),
)
