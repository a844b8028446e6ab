"""What the service remembers. Every write returns only after its commit: nothing acknowledged is lost."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from oomdoc.store import schema
from oomdoc.store.engine import migrate, open_engine
from oomkb.errors import OomdocError

__all__ = [
    "Claim",
    "Conflict",
    "DiagnosisRow",
    "Store",
    "StoreDown",
    "StoredCase",
    "StoredDiagnosis",
    "default_database_url",
    "open_store",
]


class StoreDown(OomdocError):
    """The database does not answer, or its disk is full; answers go on without it."""


class Conflict(OomdocError):
    """Somebody else wrote first."""


@dataclass(frozen=True, slots=True)
class DiagnosisRow:
    """A diagnosis to keep; ``result`` is its JSON text."""

    id: str
    language: str
    input_masked: str
    result: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Who came before with an idempotency key; ``status`` is 0 while that request still runs."""

    body_sha256: str
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


def _now() -> datetime:
    return datetime.now(UTC)


class Store:
    """One database. Safe to use from several threads and processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            raise StoreDown(
                f"the store does not answer: {reason}", hint="see /readyz and the database's log"
            ) from error

    def ping(self) -> None:
        """Whether the database answers.

        :raises StoreDown: where it does not.
        """
        with self._transaction() as connection:
            # A row of a table, not a constant: SQLite would answer that without its file.
            connection.execute(select(schema.diagnoses.c.id).limit(1)).all()

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    # Diagnoses

    def add_diagnosis(self, *, language: str, input_masked: str, result: Mapping[str, Any]) -> str:
        """Keep a diagnosis; its id."""
        identifier = secrets.token_hex(12)
        text_ = json.dumps(dict(result) | {"id": identifier}, ensure_ascii=False)
        self.add_diagnoses([DiagnosisRow(identifier, language, input_masked, text_)])
        return identifier

    def add_diagnoses(self, rows: Sequence[DiagnosisRow]) -> None:
        """Keep several in one transaction."""
        now = _now()
        values = [
            {
                "id": row.id,
                "created_at": now,
                "language": row.language,
                "input_masked": _storable(row.input_masked),
                "result": _storable(row.result),
            }
            for row in rows
        ]
        with self._transaction() as connection:
            connection.execute(insert(schema.diagnoses), values)

    def forget_diagnosis(self, identifier: str) -> bool:
        """Delete one; whether it was there."""
        table = schema.diagnoses
        with self._transaction() as connection:
            return connection.execute(delete(table).where(table.c.id == identifier)).rowcount == 1

    def diagnosis(self, identifier: str) -> StoredDiagnosis | None:
        """A diagnosis by id."""
        table = schema.diagnoses
        with self._transaction() as connection:
            row = connection.execute(select(table).where(table.c.id == identifier)).one_or_none()
        return (
            None
            if row is None
            else StoredDiagnosis(row.id, row.created_at, row.language, row.input_masked, json.loads(row.result))
        )

    def recent_diagnoses(self, limit: int = 50) -> list[StoredDiagnosis]:
        """The newest first."""
        table = schema.diagnoses
        with self._transaction() as connection:
            rows = connection.execute(select(table).order_by(table.c.created_at.desc()).limit(limit)).all()
        return [StoredDiagnosis(r.id, r.created_at, r.language, r.input_masked, json.loads(r.result)) for r in rows]

    # Chats

    def chat(self, identifier: str) -> tuple[dict[str, Any], int] | None:
        """A session's document and version."""
        table = schema.chats
        with self._transaction() as connection:
            row = connection.execute(select(table).where(table.c.id == identifier)).one_or_none()
        return None if row is None else (json.loads(row.document), row.version)

    def save_chat(self, identifier: str, document: Mapping[str, Any], *, version: int) -> int:
        """Write a session that was read at ``version`` (0: new); its new version.

        :raises Conflict: where another replica answered a turn of it meanwhile.
        """
        table = schema.chats
        values = {
            "updated_at": _now(),
            "version": version + 1,
            "document": _storable(json.dumps(dict(document), ensure_ascii=False)),
        }
        try:
            with self._transaction() as connection:
                if version == 0:
                    connection.execute(insert(table).values(id=identifier, **values))
                    return 1
                where = (table.c.id == identifier) & (table.c.version == version)
                if connection.execute(update(table).where(where).values(**values)).rowcount != 1:
                    raise Conflict(
                        "this chat went on elsewhere", where=f"chat {identifier}", hint="send the turn again"
                    )
        except IntegrityError as error:
            raise Conflict(
                "this chat was begun elsewhere", where=f"chat {identifier}", hint="send the turn again"
            ) from error
        return version + 1

    # Feedback

    def add_feedback(self, *, diagnosis_id: str, helpful: str, cause: str | None, comment_masked: str | None) -> int:
        """Keep what a person says of a diagnosis; its number."""
        row = {
            "created_at": _now(),
            "diagnosis_id": diagnosis_id,
            "helpful": helpful,
            "cause": cause,
            "comment_masked": None if comment_masked is None else _storable(comment_masked),
        }
        with self._transaction() as connection:
            key = connection.execute(insert(schema.feedback).values(row)).inserted_primary_key
        return int(key[0]) if key else 0

    def feedback(self, limit: int = 1000) -> list[dict[str, Any]]:
        """The newest first."""
        table = schema.feedback
        with self._transaction() as connection:
            rows = connection.execute(select(table).order_by(table.c.id.desc()).limit(limit)).mappings().all()
        return [dict(r) | {"created_at": r["created_at"].isoformat()} for r in rows]

    # Cases

    def add_case(self, identifier: str, yaml: str) -> int:
        """Keep a submitted case; its sequence number.

        :raises Conflict: where a case of that id exists.
        """
        row = {"id": identifier, "created_at": _now(), "yaml": _storable(yaml)}
        try:
            with self._transaction() as connection:
                key = connection.execute(insert(schema.cases).values(row)).inserted_primary_key
        except IntegrityError as error:
            raise Conflict("a case of this id exists", where=identifier, hint="choose another slug") from error
        return int(key[0]) if key else 0

    def cases_after(self, sequence: int) -> list[StoredCase]:
        """Cases added since, in order.

        Sequence numbers are given out before commit, so a number may become visible after a larger one: the caller
        looks back a little (see ``api.corpus``).
        """
        table = schema.cases
        with self._transaction() as connection:
            rows = connection.execute(select(table).where(table.c.sequence > sequence).order_by(table.c.sequence)).all()
        return [StoredCase(r.sequence, r.id, r.yaml) for r in rows]

    # Events of messengers, idempotent requests

    def first_time(self, platform: str, event_id: str) -> bool:
        """Whether this event is new; it is remembered in the same step, so a retry is answered with False."""
        try:
            with self._transaction() as connection:
                connection.execute(
                    insert(schema.events).values(platform=platform, event_id=event_id[:200], seen_at=_now())
                )
        except IntegrityError:
            return False
        return True

    def claim(self, key: str, body_sha256: str, *, lease_s: float = 60.0) -> Claim | None:
        """Take an idempotency key; ``None`` where it is now the caller's, else who was first.

        The row is inserted before the work is done, so of two requests at once one runs. A claim whose holder died
        is free again after ``lease_s``.
        """
        table = schema.idempotency
        row = {"key": key, "created_at": _now(), "body_sha256": body_sha256, "status": 0, "response": ""}
        abandoned = (table.c.key == key) & (table.c.status == 0)
        abandoned &= table.c.created_at < _now() - timedelta(seconds=lease_s)
        with self._transaction() as connection:
            connection.execute(delete(table).where(abandoned))
        try:
            with self._transaction() as connection:
                connection.execute(insert(table).values(row))
        except IntegrityError:
            with self._transaction() as connection:
                known = connection.execute(select(table).where(table.c.key == key)).one_or_none()
            return (
                Claim(body_sha256, 0, "") if known is None else Claim(known.body_sha256, known.status, known.response)
            )
        return None

    def settle(self, key: str, status: int, response: str) -> None:
        """Keep the answer of a claimed key."""
        table = schema.idempotency
        with self._transaction() as connection:
            values = {"status": status, "response": _storable(response)}
            connection.execute(update(table).where(table.c.key == key).values(**values))

    def release(self, key: str) -> None:
        """Give a claimed key back: its request was refused."""
        table = schema.idempotency
        with self._transaction() as connection:
            connection.execute(delete(table).where((table.c.key == key) & (table.c.status == 0)))

    # Retention

    def purge(self, *, older_than_days: float) -> dict[str, int]:
        """Delete what is older; how many rows of each table. Submitted cases and feedback stay."""
        before = _now() - timedelta(days=older_than_days)
        ages = {
            "diagnoses": schema.diagnoses.c.created_at,
            "chats": schema.chats.c.updated_at,
            "events": schema.events.c.seen_at,
            "idempotency": schema.idempotency.c.created_at,
        }
        with self._transaction() as connection:
            return {
                name: connection.execute(delete(schema.METADATA.tables[name]).where(column < before)).rowcount
                for name, column in ages.items()
            }

    def counts(self) -> dict[str, int]:
        """Rows per table."""
        with self._transaction() as connection:
            return {
                name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
                for name, table in schema.METADATA.tables.items()
            }


def _storable(value: str) -> str:
    """PostgreSQL's text takes no NUL, and lone surrogates cannot be encoded."""
    return value.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def default_database_url() -> str:
    """An SQLite file in the state folder."""
    from oomkb.state import state_dir

    return f"sqlite:///{state_dir() / 'oomdoc.db'}"


def open_store(url: str) -> Store:
    """Open a database and bring its schema up to date.

    :raises InputError: where it cannot be opened.
    """
    engine = open_engine(url)
    migrate(engine)
    return Store(engine)
