"""Reading bodies safely: bounded in size, time and rate, gzip undone within the same bound, held within a budget."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from oomkb.dataclass import dataclass

_GZIP: Final = 16 + zlib.MAX_WBITS
_MAX_MEMBERS: Final = 1_000
_PIECE: Final = 1 << 16
"""Bytes that are undone at once: what follows a member is copied."""
_GRACE_S: Final = 5.0
"""Before a rate is asked for."""
_IDLE_S: Final = 10.0
"""Between two pieces of a body."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a body may be. Its size counts after decompression, so a small bomb is stopped as early as a large body."""

    limit_bytes: int
    timeout_s: float
    """For all of it, where it has no least rate."""
    least_bytes_per_s: float | None = None
    """An upload may take as long as its size needs at this rate."""
    gzip: bool = False
    declared_bytes: int | None = None


class Budget:
    """Bytes of bodies that are held at once, in all and by caller: what arrives slowly must not fill the memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held: dict[str, int] = {}
        self.held_bytes = 0

    def take(self, caller: str, size_bytes: int) -> bool:
        """Whether there was room; one caller may take half of it. :meth:`give` gives it back."""
        own = self._held.get(caller, 0) + size_bytes
        if self.held_bytes + size_bytes > self._limit or own > self._limit // 2:
            return False
        self._held[caller] = own
        self.held_bytes += size_bytes
        return True

    def give(self, caller: str, size_bytes: int) -> None:
        """Give room back."""
        self.held_bytes -= size_bytes
        left = self._held.get(caller, 0) - size_bytes
        if left > 0:
            self._held[caller] = left
        else:
            self._held.pop(caller, None)


def bounded(receive: Receive, bounds: Bounds, *, hold: Callable[[int], None], arrived: Callable[[], None]) -> Receive:
    """A ``receive`` that refuses a body that is too large (413), too slow (408) or no gzip (400).

    :param hold: called with the size of each piece; may refuse.
    :param arrived: called once, when the whole body is here, before its last piece is handed on; may refuse.
    :raises HTTPException: at once for a declared length above the limit, else while reading.
    """
    limit_bytes = bounds.limit_bytes
    if bounds.declared_bytes is not None and bounds.declared_bytes > limit_bytes:
        raise HTTPException(413, f"the body is larger than {limit_bytes:,} bytes")
    started = time.monotonic()
    inflater = _Inflater() if bounds.gzip else None
    seen, came, finished = 0, 0, False

    async def read() -> Message:
        nonlocal seen, came, finished
        if finished:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), _patience_s(bounds, time.monotonic() - started, came))
        except TimeoutError:
            raise HTTPException(408, "the body did not arrive in time") from None
        if message["type"] != "http.request":
            return message
        finished = not message.get("more_body", False)
        body = message.get("body", b"")
        came += len(body)
        if inflater is not None:
            body = inflater.more(body, limit_bytes - seen + 1, last=finished)
        seen += len(body)
        if seen > limit_bytes:
            raise HTTPException(413, f"the body is larger than {limit_bytes:,} bytes")
        hold(len(body))
        if finished:
            arrived()
        return {**message, "body": body}

    return read


def _patience_s(bounds: Bounds, elapsed_s: float, came_bytes: int) -> float:
    """How long the next piece may take."""
    rate = bounds.least_bytes_per_s
    left = bounds.timeout_s - elapsed_s if rate is None else _GRACE_S + came_bytes / rate - elapsed_s
    return max(min(left, _IDLE_S), 0.001)


class _Inflater:
    """Gzip undone piece by piece: members one after the other are one body, and the last must be whole."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._members = 0

    def more(self, data: bytes, most: int, *, last: bool) -> bytes:
        """At most ``most`` further bytes.

        :raises HTTPException: 400 for what is no gzip, or ends too early.
        """
        parts: list[bytes] = []
        room = max(most, 1)
        try:
            for start in range(0, len(data), _PIECE):
                piece = data[start : start + _PIECE]
                while piece and room > 0:
                    if self._member.eof or not self._members:
                        self._next()
                    parts.append(self._member.decompress(piece, room))
                    room -= len(parts[-1])
                    piece = self._member.unused_data if self._member.eof else b""
        except zlib.error as error:
            raise HTTPException(400, f"the body is not gzip: {error}") from error
        if last and room > 0 and self._members and not self._member.eof:
            raise HTTPException(400, "the body is not gzip: it ends too early")
        return b"".join(parts)

    def _next(self) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise HTTPException(413, f"more than {_MAX_MEMBERS} gzip members")
        self._member = zlib.decompressobj(_GZIP)
