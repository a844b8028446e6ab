"""Opening the database: the engine's settings per kind, and its schema brought up to date."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from oomkb.errors import InputError

# Any number of replicas may start at once; PostgreSQL lets one of them migrate at a time.
_MIGRATION_LOCK = 0x6F6F6D
# Alembic's context is a global of the process.
_MIGRATING = threading.Lock()
_CONNECT_S = 2
_STATEMENT_S = 5


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
        return _postgresql(parsed)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise InputError(
            f"not a database oomdoc can open: {error}",
            where="OOMDOC_DATABASE_URL",
            hint="sqlite:///path/to/file or postgresql://user:password@host/name (pip install 'oomdoc[postgres]')",
        ) from error


def _postgresql(url: URL) -> Engine:
    """An answer does not wait long for a store that is away, overloaded, frozen or cut off.

    The server ends statements that take long; what it does not answer at all is given up here
    (:class:`~oomdoc.store.timeouts.TimedConnection`).
    """
    from oomdoc.store.timeouts import TimedConnection

    arguments: dict[str, Any] = {
        "connect_timeout": _CONNECT_S,
        "tcp_user_timeout": 1000 * _STATEMENT_S,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "options": f"-c statement_timeout={1000 * _STATEMENT_S} -c lock_timeout={1000 * _STATEMENT_S}"
        f" -c idle_in_transaction_session_timeout={10_000 * _STATEMENT_S}",
    }
    for name in arguments.keys() & url.query.keys():
        del arguments[name]
    engine = create_engine(
        url, pool_size=8, max_overflow=8, pool_timeout=_STATEMENT_S, pool_pre_ping=True, connect_args=arguments
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, given: Any, named: Any) -> Any:
        return TimedConnection.connect(*given, **named)

    return engine


def _sqlite(path: str, url: str) -> Engine:
    if path and path != ":memory:":
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # What people pasted is nobody else's to read; SQLite gives its further files the mode of this one.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            if Path(path).stat().st_uid == _own_uid():
                Path(path).chmod(0o600)
        except OSError as error:
            raise InputError(
                error.strerror or str(error), where=path, hint="name a folder that can be written"
            ) from error
    engine = create_engine(url, connect_args={"timeout": _STATEMENT_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        # WAL lets readers go on while one writes; FULL makes an acknowledged write survive a power cut.
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            f"busy_timeout={1000 * _STATEMENT_S}",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def _own_uid() -> int:
    return os.getuid() if hasattr(os, "getuid") else -1


def migrate(engine: Engine) -> None:
    """Bring the schema to the newest revision; safe to call from many replicas at once.

    :raises InputError: where the database cannot be reached or written, or belongs to a newer version.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

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
    except CommandError as error:
        raise InputError(
            "the database was made by a newer version of oomdoc than this one",
            where="OOMDOC_DATABASE_URL",
            hint="install that version again, or name another database; see the documentation on rolling back",
        ) from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise InputError(f"the database cannot be used: {reason}", where="OOMDOC_DATABASE_URL") from error
