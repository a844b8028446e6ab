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
    inflater = zlib.decompressobj(_GZIP) if gzip else None
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
            body = _inflate(inflater, body, limit_bytes - seen + 1)
        seen += len(body)
        if seen > limit_bytes:
            raise HTTPException(413, f"the body is larger than {limit_bytes:,} bytes")
        return {**message, "body": body}

    return read


def _inflate(inflater: zlib._Decompress, data: bytes, most: int) -> bytes:
    try:
        return inflater.decompress(data, max(most, 1))
    except zlib.error as error:
        raise HTTPException(400, f"the body is not gzip: {error}") from error
