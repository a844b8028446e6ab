"""Running the application under uvicorn: several processes, JSON logs, and heads that must arrive in time."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import traceback
from asyncio import TimerHandle, Transport
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oomdoc.settings import Settings, load_settings

_FRAMES: Final = 20


class JsonLines(logging.Formatter):
    """``time``, ``level``, ``logger``, ``event``, and the fields that the call gave as ``extra={"fields": ...}``.

    Nothing that was pasted: an error's own text may quote it, so of an exception only its kind and its places in the
    code are written.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__name__
            entry["at"] = _places(record.exc_info[2])
        return json.dumps(entry, ensure_ascii=False, default=str)


def _event(record: logging.LogRecord) -> str:
    """The message; of an exception only its first line, as it was written in the code."""
    if record.exc_info:
        return str(record.msg).strip().partition("\n")[0][:200]
    return record.getMessage()[:500]


def _places(trace: Any) -> list[str]:
    frames = traceback.extract_tb(trace)[-_FRAMES:]
    return [f"{'/'.join(frame.filename.split('/')[-3:])}:{frame.lineno} {frame.name}" for frame in frames]


def log_config(level: str) -> dict[str, Any]:
    """For :func:`logging.config.dictConfig`: everything to standard error, as JSON lines."""
    to_stderr = {"level": level.upper(), "handlers": ["stderr"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "oomdoc.api.server.JsonLines"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {"oomdoc": to_stderr, "uvicorn": to_stderr},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
    }


_METRICS = "PROMETHEUS_MULTIPROC_DIR"
_HEAD_BYTES = 64 << 10
_TIMES_THE_BODY = 2
"""Bytes around the pieces of a body (their sizes and extensions) for each of the body's own."""
_PIPELINED = 16
"""Requests that a connection may send ahead."""


def run(settings: Settings) -> None:
    """Serve until stopped."""
    folder = _share_metrics(settings)
    _announce(settings)
    # Diagnoses run side by side: a second thread for one of them would be taken from another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        uvicorn.run(
            "oomdoc.api.app:create_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            http=Patient,
            loop="auto",
            log_config=log_config(settings.log_level),
            access_log=False,
            # Whom to believe about the caller's address is decided in oomdoc.api.address.
            proxy_headers=False,
            timeout_graceful_shutdown=int(settings.drain_s),
            timeout_keep_alive=20,
            server_header=False,
        )
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _announce(settings: Settings) -> None:
    """Say what is being started, on standard error, before the seconds that loading takes; and what is not guarded."""
    from oomdoc import __version__
    from oomdoc.bots import CALLBACKS, configured

    place = f"http://{settings.host}:{settings.port}"
    store = settings.database_url.partition(":")[0] or "SQLite in the state folder"
    bots = [name for name in CALLBACKS if configured(name, settings) is not None]
    lines = [
        f"oomdoc {__version__}: loading the cases, the encoder and the memory model; then {place}",
        f"  page {place}/   API reference {place}/docs   agents {place}/mcp",
        f"  store: {store}   bots: {', '.join(bots) or 'none'}",
    ]
    if not settings.loopback and not settings.keys_required:
        lines.append(
            "  WARNING: THIS SERVER LISTENS ON A PUBLIC ADDRESS WITHOUT ASKING FOR A KEY (OOMDOC_AUTH=off). "
            "ANYBODY WHO REACHES IT CAN USE IT."
        )
    elif settings.keys_required and not settings.keys():
        lines.append(
            "  WARNING: A KEY IS REQUIRED AND NONE IS SET: the API and the page will refuse everybody. "
            "Set OOMDOC_API_KEYS=key:read+write, or OOMDOC_AUTH=off where the network is trusted."
        )
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def _share_metrics(settings: Settings) -> str | None:
    """Several processes count into files of one folder; whichever is asked adds them up."""
    if settings.workers == 1 or os.environ.get(_METRICS):
        return None
    folder = os.environ[_METRICS] = tempfile.mkdtemp(prefix="oomdoc-metrics-")
    return folder


class Patient(HttpToolsProtocol):
    """uvicorn's protocol, with a limit on the time that a request's head may take (bodies: :mod:`oomdoc.api.body`)."""

    _head_timer: TimerHandle | None = None
    _silent_bytes = 0
    """Bytes that were no body's, since the last request ended: of heads, around a body's pieces, and of trailers."""
    _body_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A first request is expected."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is expected."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A further request has begun, or goes on."""
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if self._head_timer is None and (cycle is None or cycle.response_complete):
            self._expect_head()
        self._silent_bytes += len(data)
        super().data_received(data)
        if self._silent_bytes > _HEAD_BYTES + _TIMES_THE_BODY * self._body_bytes:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_headers_complete(self) -> None:
        """The head is here."""
        self._silent_bytes = self._body_bytes = 0
        self._stop_waiting()
        if len(self.pipeline) >= _PIPELINED:
            self._refuse(b"429 Too Many Requests")
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body is here."""
        self._silent_bytes -= len(body)
        self._body_bytes += len(body)
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is here."""
        self._silent_bytes = self._body_bytes = 0
        if not self.transport.is_closing():
            super().on_message_complete()

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(_head_timeout_s(), self._too_slow)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        transport: Any = self.transport
        if not transport.is_closing():
            transport.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            transport.close()


@cache
def _head_timeout_s() -> float:
    return load_settings().header_timeout_s
