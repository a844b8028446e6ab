"""Calls to a platform: only its hosts, no redirects, bounded in time and size, patient once where it asks for it.

Which addresses the bots may call: the platform's own hosts and nothing else. A callback names addresses (a reply
hook, a file); without this check whoever can send one could make the service call into the network it stands in.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from oomkb.errors import InputError

_EARLY_S: Final = 300.0


class Tokens:
    """One app's token.

    :param fetch: asks the platform; returns the token and for how many seconds it holds.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[tuple[str, float]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._token = ""
        self._until_s = 0.0

    async def get(self) -> str:
        """A token that still holds. Two callers at once may both fetch one: either is good."""
        if not self._token or self._clock() >= self._until_s:
            token, holds_s = await self._fetch()
            self._token, self._until_s = token, self._clock() + max(holds_s - _EARLY_S, 0.0)
        return self._token

    def forget(self, token: str) -> None:
        """After the platform has refused it."""
        if self._token == token:
            self._token = ""


_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62})(?:\.[a-z0-9-]{1,63}){1,5}")
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]{1,4000}")


def allowed(url: str, hosts: Collection[str]) -> str:
    """The URL, written anew from its checked parts, where it is ``https`` on one of ``hosts``.

    An entry ``.example.com`` stands for every host below ``example.com``; any other for itself alone.

    :raises InputError: for another scheme, host or port, a login in the address, or anything a URL parser could read
        in two ways.
    """
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise _refused()
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise _refused() from None
    if parts.scheme != "https" or "@" in parts.netloc or port not in (None, 443) or not _HOST.fullmatch(host):
        raise _refused()
    if not any(host == h or (h.startswith(".") and host.endswith(h)) for h in hosts):
        raise _refused()
    query = f"?{parts.query}" if parts.query else ""
    return f"https://{host}{parts.path or '/'}{query}"


def _refused() -> InputError:
    # The address is not repeated: it may hold a token.
    return InputError("this address is not one of the platform's", where="callback")


_TIMEOUT_S: Final = 15.0
_ANSWER_BYTES: Final = 1 << 20
_PATIENCE_S: Final = 30.0


class Outgoing:
    """One platform's line out.

    :param transport: another way out than the network, for tests.
    """

    def __init__(self, hosts: Collection[str], transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._hosts = frozenset(hosts)
        self._transport = transport

    async def post(
        self, url: str, document: Mapping[str, Any], headers: Mapping[str, str] | None = None, *, method: str = "POST"
    ) -> dict[str, Any]:
        """Send JSON; the JSON that came back, empty where it was none. Retries once after the stated delay (429).

        :raises InputError: for an address that is not the platform's, or a call that failed.
        """
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        sent = {"content-type": "application/json; charset=utf-8", **(headers or {})}
        for last in (False, True):
            status, answered, answer = await self._call(method, url, sent, body, _ANSWER_BYTES)
            wait = answered.get("retry-after", "")
            if status == 429 and not last and wait.isdigit() and int(wait) <= _PATIENCE_S:
                await asyncio.sleep(int(wait))
                continue
            return _document(status, answer)
        raise AssertionError("unreachable")

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON at an address.

        :raises InputError: for an address that is not the platform's, or a call that failed.
        """
        status, _, answer = await self._call("GET", url, dict(headers or {}), b"", _ANSWER_BYTES)
        return _document(status, answer)

    async def download(self, url: str, headers: Mapping[str, str], limit_bytes: int) -> bytes:
        """A file's bytes.

        :raises InputError: as above, and for a file that is larger than the limit or is a page asking to log in.
        """
        status, answered, content = await self._call("GET", url, dict(headers), b"", limit_bytes)
        if status != 200:
            raise InputError(f"the platform does not hand the file out (status {status})", where="file")
        if answered.get("content-type", "").startswith("text/html"):
            raise InputError("the platform hands out a page instead of the file", where="file")
        return content

    async def _call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limit_bytes: int
    ) -> tuple[int, httpx.Headers, bytes]:
        checked = allowed(url, self._hosts)
        try:
            async with (
                asyncio.timeout(4 * _TIMEOUT_S),
                httpx.AsyncClient(follow_redirects=False, timeout=_TIMEOUT_S, transport=self._transport) as client,
                client.stream(method, checked, headers=dict(headers), content=body or None) as response,
            ):
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > limit_bytes:
                        raise InputError(f"larger than {limit_bytes:,} bytes", where="file")
                return response.status_code, response.headers, bytes(content)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise InputError(f"the platform does not answer ({type(error).__name__})", where="callback") from error


def _document(status: int, answer: bytes) -> dict[str, Any]:
    if not 200 <= status < 300:
        raise InputError(f"the platform answered with status {status}", where="callback")
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
