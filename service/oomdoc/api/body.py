"""Reading bodies safely: bounded in size and time, gzip undone within the same bound."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

__all__ = ["bounded"]

_GZIP: Final = 16 + zlib.MAX_WBITS


def bounded(receive: Receive, *, limit_bytes: int, timeout_s: float, gzip: bool, declared: int | None) -> Receive:
    """A ``receive`` that refuses a body that is too large (413), too slow (408) or no gzip (400).

    The limit counts bytes after decompression, so a small bomb is stopped as early as a large body.

    :raises HTTPException: at once for a declared length above the limit, else while reading.
    """
    if declared is not None and declared > limit_bytes:
        raise HTTPException(413, f"the body is larger than {limit_bytes:,} bytes")
    started = time.monotonic()
    inflater = _Inflater() if gzip else None
    seen, finished = 0, False

    async def read() -> Message:
        nonlocal seen, finished
        if finished:
            return await receive()
        left = timeout_s - (time.monotonic() - started)
        try:
            message = await asyncio.wait_for(receive(), max(left, 0.001))
        except TimeoutError:
            raise HTTPException(408, "the body did not arrive in time") from None
        if message["type"] != "http.request":
            return message
        finished = not message.get("more_body", False)
        body = message.get("body", b"")
        if inflater is not None:
            body = inflater.more(body, limit_bytes - seen + 1, last=finished)
        seen += len(body)
        if seen > limit_bytes:
            raise HTTPException(413, f"the body is larger than {limit_bytes:,} bytes")
        return {**message, "body": body}

    return read


class _Inflater:
    """Gzip undone piece by piece: members one after the other are one body, and the last must be whole."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False

    def more(self, data: bytes, most: int, *, last: bool) -> bytes:
        """At most ``most`` further bytes.

        :raises HTTPException: 400 for what is no gzip, or ends too early.
        """
        parts: list[bytes] = []
        room = max(most, 1)
        try:
            while data and room > 0:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP)
                self._begun = True
                parts.append(self._member.decompress(data, room))
                room -= len(parts[-1])
                data = self._member.unused_data if self._member.eof else b""
        except zlib.error as error:
            raise HTTPException(400, f"the body is not gzip: {error}") from error
        if last and room > 0 and self._begun and not self._member.eof:
            raise HTTPException(400, "the body is not gzip: it ends too early")
        return b"".join(parts)
