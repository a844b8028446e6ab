"""What stands before every route: request id, key, rate, load, body bounds, metrics and a log line without content.

Plain ASGI: it costs microseconds, and it sees streamed bodies as they come.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oomdoc.api import metrics
from oomdoc.api.auth import Keys
from oomdoc.api.body import bounded
from oomdoc.api.limits import Buckets, Gate
from oomdoc.api.problems import problem
from oomdoc.settings import Settings

__all__ = ["Guard"]

_LOG: Final = logging.getLogger("oomdoc.access")
_ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_UPLOAD: Final = frozenset({"/v1/diagnose"})
# Arithmetic costs a fiftieth of a diagnosis or less.
_CHEAP: Final[Mapping[str, float]] = {"/v1/estimate": 0.02}
# What is left of such a body is not read: the connection goes.
_CLOSING: Final = frozenset({400, 408, 413})
_SECURITY: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Guard:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._keys = Keys(settings)
        self._buckets = Buckets(settings.rate_per_minute)
        self._gate = Gate(settings.max_concurrent)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        identifier = _request_id(headers.get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = identifier
        watched = _Watched(send, identifier)
        started = time.perf_counter()
        try:
            await self._admit(scope, headers, receive, watched)
        except HTTPException as error:
            if not watched.status:
                sent = dict(error.headers or {}) | ({"Connection": "close"} if error.status_code in _CLOSING else {})
                await problem(error.status_code, str(error.detail), headers=sent)(scope, receive, watched)
        finally:
            _account(scope, watched.status, time.perf_counter() - started, identifier)

    async def _admit(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in _ALWAYS and path != "/metrics":
            await self._app(scope, receive, send)
            return
        caller = self._keys.admit(scope, headers)
        wait = self._buckets.take(caller, _CHEAP.get(path, 1.0))
        if wait > 0:
            raise HTTPException(429, "too many requests", headers={"Retry-After": str(int(wait) + 1)})
        if not self._gate.enter():
            raise HTTPException(503, "the server is busy", headers={"Retry-After": "1"})
        try:
            await self._app(scope, self._bounded(scope, headers, receive), send)
        finally:
            self._gate.leave()

    def _bounded(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        upload = scope["path"] in _UPLOAD and headers.get("content-type", "").startswith("multipart/")
        limit = self._settings.max_upload_bytes if upload else self._settings.max_body_bytes
        declared = headers.get("content-length", "")
        gzip = headers.get("content-encoding", "").strip().lower() == "gzip"
        # An upload may take as long as its size needs at 256 KiB/s, any other body the plain limit.
        timeout = self._settings.body_timeout_s
        if upload and declared.isdigit():
            timeout += int(declared) / (256 << 10)
        return bounded(
            receive,
            limit_bytes=limit,
            timeout_s=timeout,
            gzip=gzip,
            declared=int(declared) if declared.isdigit() and not gzip else None,
        )


class _Watched:
    """A ``send`` that notes the status and adds the headers that every answer carries."""

    def __init__(self, send: Send, identifier: str) -> None:
        self._send = send
        self._identifier = identifier
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._identifier
            for name, value in _SECURITY.items():
                headers.setdefault(name, value)
        await self._send(message)


def _request_id(given: str | None) -> str:
    """The caller's id where it is harmless, else a new one."""
    if given and len(given) <= 64 and all(c.isalnum() or c in "-_." for c in given):
        return given
    return secrets.token_hex(8)


def _account(scope: Scope, status: int, seconds: float, identifier: str) -> None:
    route = getattr(scope.get("route"), "path", "other")
    metrics.observe(scope["method"], route, status or 499, seconds)
    if _LOG.isEnabledFor(logging.INFO):
        fields: dict[str, Any] = {"id": identifier, "method": scope["method"], "route": route}
        _LOG.info("request", extra={"fields": {**fields, "status": status or 499, "ms": round(1000 * seconds, 1)}})
