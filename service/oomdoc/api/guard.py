"""What stands before every route: request id, key, rate, load, body bounds, metrics and a log line without content.

Plain ASGI: it costs microseconds, and it sees streamed bodies as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oomdoc.api import metrics
from oomdoc.api.auth import Keys
from oomdoc.api.body import Bounds, Budget, bounded
from oomdoc.api.pool import CALLER
from oomdoc.api.problems import problem
from oomdoc.intake.redact import masked_text
from oomdoc.settings import Settings

_MAX_CALLERS: Final = 50_000
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9._-]{1,36}")


class Buckets:
    """Token buckets by caller; the least recently seen are forgotten, so that memory stays flat."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60.0
        # Ten seconds' worth may come at once.
        self._burst = max(1.0, per_minute / 6.0)
        self._clock = clock
        self._callers: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str) -> float:
        """Seconds until the caller may come, without taking anything."""
        known = self._callers.get(caller)
        if known is None:
            return 0.0
        tokens = min(self._burst, known[0] + (self._clock() - known[1]) * self._rate)
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._rate

    def take(self, caller: str, cost: float = 1.0) -> float:
        """Take ``cost`` tokens (at most one); 0.0 where they were there, else the seconds until they will be."""
        now = self._clock()
        tokens, at = self._callers.pop(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        wait = 0.0 if tokens >= cost else (cost - tokens) / self._rate
        self._callers[caller] = (tokens - cost if wait == 0.0 else tokens, now)
        if len(self._callers) > _MAX_CALLERS:
            self._callers.popitem(last=False)
        return wait


class Gate:
    """Counts requests in flight; above the limit new ones are shed rather than queued without end.

    :param each: how many of them one caller may have.
    """

    def __init__(self, limit: int, each: int) -> None:
        self._limit, self._each = limit, each
        self._callers: dict[str, int] = {}
        self.inside = 0

    def enter(self, caller: str) -> bool:
        """Whether there was a place; :meth:`leave` gives it back."""
        if self.inside >= self._limit or self.crowded(caller):
            return False
        self.inside += 1
        self._callers[caller] = self._callers.get(caller, 0) + 1
        return True

    def crowded(self, caller: str) -> bool:
        """Whether this caller has as many places as one may have."""
        return self._callers.get(caller, 0) >= self._each

    def leave(self, caller: str) -> None:
        """Give a place back."""
        self.inside -= 1
        left = self._callers[caller] - 1
        if left:
            self._callers[caller] = left
        else:
            del self._callers[caller]


class Origins:
    """Which names this server answers to, and which web pages may call it, by one server's settings.

    Where callers need a key, that is what protects; these rules are for servers that ask for none, on a person's own
    machine, which any page in that person's browser could reach otherwise.
    """

    def __init__(self, settings: Settings) -> None:
        self._hosts = frozenset(_listed(settings.allowed_hosts))
        self._origins = frozenset(o.rstrip("/") for o in _listed(settings.cors_origins))

    def check(self, method: str, headers: Headers) -> None:
        """Refuse a foreign ``Host`` (a name that was pointed here), and what a foreign page sends.

        :raises HTTPException: 421 for the host, 403 for the page.
        """
        host = headers.get("host", "")
        if "@" in host or not self._known(_name(f"//{host}")):
            raise HTTPException(421, "this server is not known by that name: see OOMDOC_ALLOWED_HOSTS")
        if method in ("GET", "HEAD", "OPTIONS"):
            return
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site") == "cross-site":
                raise HTTPException(403, "pages elsewhere may not call this server: see OOMDOC_CORS_ORIGINS")
            return
        same = urlsplit(origin).netloc.lower() == host.lower() if "://" in origin else False
        if not (same or origin.lower().rstrip("/") in self._origins or "*" in self._origins):
            raise HTTPException(403, "pages elsewhere may not call this server: see OOMDOC_CORS_ORIGINS")

    def _known(self, name: str) -> bool:
        """Addresses and names without a dot are nobody's to register; any other name has to be listed."""
        if not name or "*" in self._hosts or name in self._hosts:
            return True
        if name.endswith(".localhost") or "." not in name.strip("."):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return "invalid.invalid"


def _listed(value: str) -> list[str]:
    return [part.strip().lower() for part in value.split(",") if part.strip()]


_LOG: Final = logging.getLogger("oomdoc.access")
_ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_UPLOAD: Final = frozenset({"/v1/diagnose"})
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_SMALL: Final = 1 << 20
# Bodies that hold what people paste; all others are small documents.
_LIMITS: Final[Mapping[str, int]] = {"/v1/diagnose": 1 << 40, "/v1/chat": 4 << 20, "/mcp": 8 << 20}
_WRONG_KEYS_PER_MINUTE: Final = 60
# Arithmetic costs a fiftieth of a diagnosis or less.
_CHEAP: Final[Mapping[str, float]] = {"/v1/estimate": 0.02}
# What is left of such a body is not read: the connection goes.
_CLOSING: Final = frozenset({400, 401, 403, 408, 413, 421, 429, 503})
_DRAINED_BYTES: Final = 8 << 20
_DRAINED_S: Final = 1.0
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
        self._wrong = Buckets(_WRONG_KEYS_PER_MINUTE)
        self._gate = Gate(settings.max_concurrent, settings.max_concurrent_each)
        self._budget = Budget(settings.max_held_bytes)
        self._origins = Origins(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        identifier = _request_id(headers.get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = identifier
        rest = _Rest(receive, headers)
        watched = _Watched(send, identifier, rest)
        started = time.perf_counter()
        try:
            await self._admit(scope, headers, rest.receive, watched)
        except HTTPException as error:
            if not watched.status:
                sent = dict(error.headers or {}) | ({"Connection": "close"} if error.status_code in _CLOSING else {})
                await problem(error.status_code, str(error.detail), headers=sent)(scope, rest.receive, watched)
        finally:
            _account(scope, watched.status, time.perf_counter() - started, identifier)

    async def _admit(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in _ALWAYS and path != "/metrics":
            await self._app(scope, receive, send)
            return
        caller = self._known_caller(scope, headers)
        CALLER.set(caller)
        scope["state"] |= {"caller": caller, "admin": caller.startswith("key:") and self._keys.is_admin(headers)}
        wait = self._buckets.take(caller, _CHEAP.get(path, 1.0))
        if wait > 0:
            raise HTTPException(429, "too many requests", headers={"Retry-After": str(int(wait) + 1)})
        place = _Place(self._gate, self._budget, caller, spooled=_is_upload(scope, headers))
        # A place is taken when the body is here: who sends slowly keeps nobody out.
        if scope["method"] in _BODILESS:
            place.enter()
        try:
            bounds = self._bounds(scope, headers)
            await self._app(scope, bounded(receive, bounds, hold=place.hold, arrived=place.enter), send)
        finally:
            place.leave()

    def _known_caller(self, scope: Scope, headers: Headers) -> str:
        """The caller's name; wrong keys are counted by address, so that nobody can try many.

        :raises HTTPException: where it may not call.
        """
        address = self._keys.address(scope, headers)
        if self._wrong.wait(address) > 0:
            raise HTTPException(429, "too many wrong keys", headers={"Retry-After": "60"})
        try:
            caller = self._keys.admit(scope, headers)
        except HTTPException as error:
            if error.status_code == 401 and self._keys.given(headers):
                self._wrong.take(address)
            raise
        if not caller.startswith("key:") and not scope["path"].startswith("/integrations/"):
            self._origins.check(scope["method"], headers)
        return caller

    def _bounds(self, scope: Scope, headers: Headers) -> Bounds:
        settings = self._settings
        gzip = headers.get("content-encoding", "").strip().lower() == "gzip"
        upload = _is_upload(scope, headers)
        limit = settings.max_upload_bytes if upload and not gzip else settings.max_body_bytes
        declared = headers.get("content-length", "")
        return Bounds(
            limit_bytes=limit if upload else min(limit, _LIMITS.get(scope["path"], _SMALL)),
            timeout_s=settings.body_timeout_s,
            least_bytes_per_s=settings.min_upload_bytes_per_s if upload else None,
            gzip=gzip,
            declared_bytes=int(declared) if declared.isdecimal() and len(declared) < 20 and not gzip else None,
        )


class _Place:
    """A request's place among those that are worked on, and the memory that its body takes."""

    def __init__(self, gate: Gate, budget: Budget, caller: str, *, spooled: bool) -> None:
        self._gate, self._budget, self._caller, self._spooled = gate, budget, caller, spooled
        self._held_bytes = 0
        self._inside = False

    def enter(self) -> None:
        """:raises HTTPException: 503 where there is no place, 429 where only this caller has none."""
        if self._inside:
            return
        if self._gate.crowded(self._caller):
            raise HTTPException(429, "too many requests at once", headers={"Retry-After": "1"})
        if not self._gate.enter(self._caller):
            raise HTTPException(503, "the server is busy", headers={"Retry-After": "1"})
        self._inside = True

    def hold(self, size_bytes: int) -> None:
        """:raises HTTPException: 503 where there is no memory for a body; files go to disk and need none."""
        if self._spooled:
            return
        if not self._budget.take(self._caller, size_bytes):
            raise HTTPException(503, "too many large bodies at once", headers={"Retry-After": "1"})
        self._held_bytes += size_bytes

    def leave(self) -> None:
        """Give everything back."""
        if self._inside:
            self._gate.leave(self._caller)
        self._budget.give(self._caller, self._held_bytes)


def _is_upload(scope: Scope, headers: Headers) -> bool:
    return scope["path"] in _UPLOAD and headers.get("content-type", "").startswith("multipart/")


class _Rest:
    """What is left of a body that is refused: read for a moment, since a caller that still sends sees no answer."""

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        self._left = headers.get("expect") is None and ("content-length" in headers or "transfer-encoding" in headers)

    async def receive(self) -> Message:
        message = await self._receive()
        self._left = self._left and bool(message.get("more_body"))
        return message

    async def drain(self) -> None:
        room = _DRAINED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAINED_S):
                while self._left and room > 0:
                    room -= len((await self.receive()).get("body", b""))


class _Watched:
    """A ``send`` that notes the status and adds the headers that every answer carries."""

    def __init__(self, send: Send, identifier: str, rest: _Rest) -> None:
        self._send = send
        self._rest = rest
        self._identifier = identifier
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status in _CLOSING:
                await self._rest.drain()
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._identifier
            for name, value in _SECURITY.items():
                headers.setdefault(name, value)
        await self._send(message)


def _request_id(given: str | None) -> str:
    """The caller's id where it is one and no credential, else a new one."""
    if given and _IDENTIFIER.fullmatch(given) and masked_text(given) == given:
        return given
    return secrets.token_hex(8)


def _account(scope: Scope, status: int, seconds: float, identifier: str) -> None:
    route = getattr(scope.get("route"), "path", "other")
    metrics.observe(scope["method"], route, status or 499, seconds)
    if _LOG.isEnabledFor(logging.INFO):
        fields: dict[str, Any] = {"id": identifier, "method": scope["method"], "route": route}
        _LOG.info("request", extra={"fields": {**fields, "status": status or 499, "ms": round(1000 * seconds, 1)}})
