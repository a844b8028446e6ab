"""Calls to a platform: only its hosts, no redirects, bounded in time and size, patient once where it asks for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import httpx

from oomdoc.bots.hosts import allowed
from oomkb.errors import InputError

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
