"""What goes: rows past their days, texts past their bytes, and what a person wants deleted."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, func, select

from oomdoc.store import schema


def purged(connection: Connection, before: datetime, most_bytes: int | None) -> dict[str, int]:
    """Delete what is older, and of diagnoses those not asked for longest beyond ``most_bytes``; rows by table."""
    ages = {
        "diagnoses": schema.diagnoses.c.created_at,
        "chats": schema.chats.c.updated_at,
        "events": schema.events.c.seen_at,
        "idempotency": schema.idempotency.c.created_at,
    }
    gone = {
        name: connection.execute(delete(schema.METADATA.tables[name]).where(column < before)).rowcount
        for name, column in ages.items()
    }
    if most_bytes is not None:
        gone["diagnoses"] += _shrink(connection, most_bytes)
    _sweep(connection, before)
    return gone


def erased(connection: Connection, identifier: str | None, now: datetime) -> dict[str, int]:
    """Delete a diagnosis or chat with all that belongs to it, or every row; rows by table."""
    if identifier is None:
        return {name: connection.execute(delete(table)).rowcount for name, table in schema.METADATA.tables.items()}
    wanted = {
        "diagnoses": schema.diagnoses.c.id,
        "feedback": schema.feedback.c.diagnosis_id,
        "chats": schema.chats.c.id,
    }
    gone = {
        name: connection.execute(delete(schema.METADATA.tables[name]).where(column == identifier)).rowcount
        for name, column in wanted.items()
    }
    _sweep(connection, now)
    return gone


def _shrink(connection: Connection, most_bytes: int) -> int:
    """Delete the diagnoses whose texts were not given for longest, until the others fit."""
    contents, diagnoses = schema.contents, schema.diagnoses
    held = int(connection.execute(select(func.coalesce(func.sum(contents.c.size_bytes), 0))).scalar_one())
    gone = 0
    while held > most_bytes:
        oldest = connection.execute(
            select(contents.c.sha256, contents.c.size_bytes).order_by(contents.c.used_at).limit(500)
        ).all()
        if not oldest:
            break
        keys = []
        for key, size_bytes in oldest:
            keys.append(key)
            held -= size_bytes
            if held <= most_bytes:
                break
        gone += connection.execute(delete(diagnoses).where(diagnoses.c.content.in_(keys))).rowcount
        connection.execute(delete(contents).where(contents.c.sha256.in_(keys)))
    return gone


def _sweep(connection: Connection, before: datetime) -> None:
    """Delete texts that no diagnosis refers to; one that is just being given is newer than ``before``."""
    used = select(schema.diagnoses.c.content).where(schema.diagnoses.c.content.is_not(None))
    contents = schema.contents
    connection.execute(delete(contents).where((contents.c.used_at <= before) & contents.c.sha256.not_in(used)))
