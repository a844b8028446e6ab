"""What the service remembers. Every write returns only after its commit: nothing acknowledged is lost."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from oomdoc.store import retention, schema
from oomdoc.store.engine import migrate, open_engine
from oomdoc.store.schema import Conflict, DiagnosisRow, StoredCase, StoredDiagnosis, StoreDown, StoredResponse

__all__ = [
    "Conflict",
    "DiagnosisRow",
    "Store",
    "StoreDown",
    "StoredCase",
    "StoredDiagnosis",
    "StoredResponse",
    "default_database_url",
    "open_store",
]


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
        self.add_diagnoses(
            [DiagnosisRow(identifier, language, input_masked, json.dumps(dict(result), ensure_ascii=False))]
        )
        return identifier

    def add_diagnoses(self, rows: Sequence[DiagnosisRow]) -> None:
        """Keep several in one transaction; what was answered before is referred to, not kept again."""
        now = _now()
        kept: dict[str, dict[str, Any]] = {}
        values = []
        for row in rows:
            masked, result = _storable(row.input_masked), _storable(row.result)
            key = hashlib.sha256(f"{len(masked)}:{masked}{result}".encode()).hexdigest()
            size_bytes = len(masked.encode()) + len(result.encode())
            kept[key] = {
                "sha256": key,
                "used_at": now,
                "size_bytes": size_bytes,
                "input_masked": masked,
                "result": result,
            }
            values.append(
                {
                    "id": row.id,
                    "created_at": now,
                    "language": row.language,
                    "input_masked": "",
                    "result": "",
                    "content": key,
                }
            )
        with self._transaction() as connection:
            connection.execute(self._upsert(), [kept[key] for key in sorted(kept)])
            connection.execute(insert(schema.diagnoses), values)

    def _upsert(self) -> Any:
        kind = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        added = kind.insert(schema.contents)
        return added.on_conflict_do_update(index_elements=["sha256"], set_={"used_at": added.excluded.used_at})

    def forget_diagnosis(self, identifier: str) -> bool:
        """Delete one; whether it was there."""
        table = schema.diagnoses
        with self._transaction() as connection:
            return connection.execute(delete(table).where(table.c.id == identifier)).rowcount == 1

    def diagnosis(self, identifier: str) -> StoredDiagnosis | None:
        """A diagnosis by id."""
        with self._transaction() as connection:
            row = connection.execute(_WHOLE.where(schema.diagnoses.c.id == identifier)).one_or_none()
        return None if row is None else _stored(row)

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

    def add_feedback(
        self,
        *,
        diagnosis_id: str,
        helpful: str,
        cause: str | None,
        comment_masked: str | None,
        connection: Connection | None = None,
    ) -> int:
        """Keep what a person says of a diagnosis, in a transaction of its own or that of ``connection``; its number."""
        row = {
            "created_at": _now(),
            "diagnosis_id": diagnosis_id,
            "helpful": helpful,
            "cause": None if cause is None else _storable(cause),
            "comment_masked": None if comment_masked is None else _storable(comment_masked),
        }
        with self._joined(connection) as joined:
            key = joined.execute(insert(schema.feedback).values(row)).inserted_primary_key
        return int(key[0]) if key else 0

    @contextmanager
    def _joined(self, connection: Connection | None) -> Iterator[Connection]:
        if connection is not None:
            yield connection
            return
        with self._transaction() as own:
            yield own

    def feedback(self, limit: int = 1000) -> list[dict[str, Any]]:
        """The newest first."""
        table = schema.feedback
        with self._transaction() as connection:
            rows = connection.execute(select(table).order_by(table.c.id.desc()).limit(limit)).mappings().all()
        return [dict(r) | {"created_at": r["created_at"].isoformat()} for r in rows]

    # Cases

    def add_case(self, identifier: str, yaml: str, *, owner: str = "", connection: Connection | None = None) -> int:
        """Keep a submitted case, as :meth:`add_feedback` does; its sequence number.

        :raises Conflict: where a case of that id exists.
        """
        table = schema.cases
        row = {"id": identifier, "created_at": _now(), "yaml": _storable(yaml), "owner": owner}
        with self._joined(connection) as joined:
            # Looked for first: an insert that fails would take the whole transaction with it.
            if joined.execute(select(table.c.id).where(table.c.id == identifier)).one_or_none() is not None:
                raise _taken(identifier)
            try:
                key = joined.execute(insert(table).values(row)).inserted_primary_key
            except IntegrityError as error:
                raise _taken(identifier) from error
        return int(key[0]) if key else 0

    def case_owner(self, identifier: str) -> str | None:
        """Who submitted a case; ``None`` where there is none of that id."""
        table = schema.cases
        with self._transaction() as connection:
            return connection.execute(select(table.c.owner).where(table.c.id == identifier)).scalar_one_or_none()

    def forget_case(self, identifier: str) -> bool:
        """Delete a submitted case; whether it was there."""
        table = schema.cases
        with self._transaction() as connection:
            return connection.execute(delete(table).where(table.c.id == identifier)).rowcount == 1

    def case_ids(self) -> set[str]:
        """Of all submitted cases."""
        with self._transaction() as connection:
            return set(connection.execute(select(schema.cases.c.id)).scalars())

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

    def once(
        self, key: str, body_sha256: str, status: int, effect: Callable[[Connection], dict[str, Any]]
    ) -> StoredResponse:
        """Do ``effect`` at most once per idempotency key, in the transaction that keeps its answer.

        Whoever comes with the same key meanwhile waits for that transaction in the database (for as long as a statement
        may take) and gets its answer; where it was rolled back, or its process died, nothing of it is there.

        :param effect: writes through the connection and gives the answer; what it raises takes the key back.
        :raises Conflict: where the key was used with another body.
        """
        table = schema.idempotency
        row = {"key": key, "created_at": _now(), "body_sha256": body_sha256, "status": status, "response": ""}
        try:
            with self._transaction() as connection:
                # Left by an older version, whose requests took a key before they ran.
                connection.execute(delete(table).where((table.c.key == key) & (table.c.status == 0)))
                connection.execute(insert(table).values(row))
                response = json.dumps(effect(connection), ensure_ascii=False)
                connection.execute(update(table).where(table.c.key == key).values(response=_storable(response)))
            return StoredResponse(status, response)
        except IntegrityError:
            with self._transaction() as connection:
                known = connection.execute(select(table).where(table.c.key == key)).one_or_none()
        if known is None:
            raise Conflict("the request with this key did not end", where="Idempotency-Key", hint="try again")
        if known.body_sha256 != body_sha256:
            raise Conflict("this key was used with another body", where="Idempotency-Key", hint="use a new key")
        return StoredResponse(known.status, known.response)

    def written(self, effect: Callable[[Connection], dict[str, Any]]) -> dict[str, Any]:
        """Do ``effect`` in a transaction, without a key."""
        with self._transaction() as connection:
            return effect(connection)

    # Retention

    def purge(self, *, older_than_days: float, most_bytes: int | None = None) -> dict[str, int]:
        """Delete what is older; how many rows of each table. Submitted cases and feedback stay.

        :param most_bytes: of diagnoses and what was pasted for them; beyond it those not asked for longest go too.
        """
        with self._transaction() as connection:
            return retention.purged(connection, _now() - timedelta(days=older_than_days), most_bytes)

    def everything(self) -> Iterator[dict[str, Any]]:
        """Every row of every table, as plain values under ``table``; secrets that were masked stay masked."""
        for name, table in schema.METADATA.tables.items():
            with self._transaction() as connection:
                for row in connection.execute(select(table)).mappings():
                    plain = {k: v.isoformat() if isinstance(v, datetime) else v for k, v in row.items()}
                    yield {"table": name, **plain}

    def erase(self, identifier: str | None = None) -> dict[str, int]:
        """Delete a diagnosis or chat with all that belongs to it, or (without id) every row; how many of each table."""
        with self._transaction() as connection:
            return retention.erased(connection, identifier, _now())

    def counts(self) -> dict[str, int]:
        """Rows per table."""
        with self._transaction() as connection:
            return {
                name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
                for name, table in schema.METADATA.tables.items()
            }


_WHOLE: Final = select(
    schema.diagnoses,
    schema.contents.c.input_masked.label("own_input"),
    schema.contents.c.result.label("own_result"),
).join(schema.contents, schema.diagnoses.c.content == schema.contents.c.sha256, isouter=True)


def _stored(row: Any) -> StoredDiagnosis:
    """Rows of the first version hold their text themselves."""
    result = json.loads(row.own_result or row.result) | {"id": row.id}
    return StoredDiagnosis(row.id, row.created_at, row.language, row.own_input or row.input_masked, result)


def _taken(identifier: str) -> Conflict:
    return Conflict("a case of this id exists", where=identifier, hint="choose another slug")


def _storable(value: str) -> str:
    """PostgreSQL's text takes no NUL, and lone surrogates cannot be encoded."""
    return value.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def default_database_url() -> str:
    """An SQLite file in the folder for what must last."""
    from oomkb.state import lasting_dir

    return f"sqlite:///{lasting_dir() / 'oomdoc.db'}"


def open_store(url: str) -> Store:
    """Open a database and bring its schema up to date.

    :raises InputError: where it cannot be opened.
    """
    engine = open_engine(url)
    migrate(engine)
    return Store(engine)
