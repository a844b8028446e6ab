"""A small HTTP/1.1 client for load: keep-alive connections on the loopback, an open loop at a given rate.

Open loop: requests are due at fixed times whatever the answers do, and a time is counted from when it was due, so
a slow server cannot hide behind a slow client.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

HOST = "127.0.0.1"
IDLE_S = 10.0
"""A connection that rested longer is opened anew, as clients do: the server closes idle ones after 20 s."""


@dataclass
class Seen:
    """Statuses and times (s) of the answers with status 200."""

    statuses: Counter[int] = field(default_factory=Counter)
    times_s: list[float] = field(default_factory=list)

    def at(self, quantile: float) -> float:
        """The quantile of the times."""
        ordered = sorted(self.times_s)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else float("nan")


class Connection:
    """One request at a time; opened again where the server closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used_at = 0.0

    async def post(self, path: str, body: bytes, kind: str) -> int:
        """The answer's status; 0 where the connection broke."""
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        if self._streams is not None and time.perf_counter() - self._used_at > IDLE_S:
            self.close()
            self._streams = None
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        self._used_at = time.perf_counter()
        reader, writer = self._streams
        try:
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError, IndexError):
            writer.close()
            self._streams = None
            return 0
        if b"connection: close" in answer:
            writer.close()
            self._streams = None
        return int(answer[9:12])

    def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()


async def open_loop(
    port: int, path: str, kind: str, body: Callable[[int], bytes], *, per_second: float, seconds: float
) -> Seen:
    """Send ``per_second`` for ``seconds``; at most 512 connections."""
    seen, free = Seen(), [Connection(port) for _ in range(512)]
    everyone, tasks = list(free), set()
    start = time.perf_counter()

    async def one(number: int, due: float) -> None:
        connection = free.pop() if free else None
        if connection is None:
            seen.statuses[-1] += 1
            return
        status = await connection.post(path, body(number), kind)
        free.append(connection)
        seen.statuses[status] += 1
        if status == 200:
            seen.times_s.append(time.perf_counter() - due)

    for number in range(int(per_second * seconds)):
        due = start + number / per_second
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(number, due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(set(tasks), timeout=30)
    for connection in everyone:
        connection.close()
    return seen


async def closed_loop(
    port: int, path: str, kind: str, body: Callable[[int], bytes], *, connections: int, seconds: float, most: int
) -> Seen:
    """As fast as ``connections`` get answers, for ``seconds`` or ``most`` requests."""
    seen, until, number = Seen(), time.perf_counter() + seconds, iter(range(most))

    async def worker() -> None:
        connection = Connection(port)
        for n in number:
            began = time.perf_counter()
            if began > until:
                break
            status = await connection.post(path, body(n), kind)
            seen.statuses[status] += 1
            if status == 200:
                seen.times_s.append(time.perf_counter() - began)
        connection.close()

    await asyncio.gather(*(worker() for _ in range(connections)))
    return seen
