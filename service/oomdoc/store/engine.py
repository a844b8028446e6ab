"""Opening the database: the engine's settings per kind, and its schema brought up to date."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from oomkb.errors import InputError

__all__ = ["migrate", "open_engine"]

# Any number of replicas may start at once; PostgreSQL lets one of them migrate at a time.
_MIGRATION_LOCK = 0x6F6F6D
# Alembic's context is a global of the process.
_MIGRATING = threading.Lock()


def open_engine(url: str) -> Engine:
    """An engine for ``sqlite:///path`` or ``postgresql://...`` (psycopg).

    :raises InputError: for a URL that names no database oomdoc can use.
    """
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed.database or "", url)
        # An answer does not wait long for a store that is away.
        away = {} if "connect_timeout" in parsed.query else {"connect_timeout": 3}
        return create_engine(parsed, pool_size=8, max_overflow=8, pool_timeout=5, pool_pre_ping=True, connect_args=away)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise InputError(
            f"not a database oomdoc can open: {error}",
            where="OOMDOC_DATABASE_URL",
            hint="sqlite:///path/to/file or postgresql://user:password@host/name (pip install 'oomdoc[postgres]')",
        ) from error


def _sqlite(path: str, url: str) -> Engine:
    if path and path != ":memory:":
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                error.strerror or str(error), where=path, hint="name a folder that can be written"
            ) from error
    engine = create_engine(url, connect_args={"timeout": 10, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        # WAL lets readers go on while one writes; FULL makes an acknowledged write survive a power cut.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def migrate(engine: Engine) -> None:
    """Bring the schema to the newest revision; safe to call from many replicas at once.

    :raises InputError: where the database cannot be reached or written.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    try:
        with _MIGRATING, engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            else:
                # The driver begins a write only at the first DML, after Alembic has looked at the revision.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise InputError(f"the database cannot be used: {reason}", where="OOMDOC_DATABASE_URL") from error
