"""One request and its answer, as lines, within one limit of time and size, for callers with an event loop or none."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from oomdoc.language_model.failing import Reason, Unavailable

_ANSWER_BYTES: Final = 1 << 20
_REFUSAL_BYTES: Final = 8 << 10
_STATUS: Final[Mapping[int, Reason]] = {401: "refused", 403: "refused", 408: "timeout", 429: "busy", 504: "timeout"}


class Refusal(Unavailable):
    """A status that is not 200, with what the endpoint says of it."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(_STATUS.get(status, "failed"), f"status {status}")
        self.status = status
        self.said = said


def exchanged(url: str, headers: Mapping[str, str], body: Mapping[str, Any], seconds: float) -> Iterator[str]:
    """Post ``body`` and give the answer's lines as they come.

    :param seconds: limit around everything; an endpoint that drips cannot stretch it.
    :raises Unavailable: whatever goes wrong; :class:`Refusal` for a status that is not 200.
    """
    worker = _Worker(url, headers, body, seconds)
    worker.start()
    try:
        while True:
            item = worker.items.get()
            if isinstance(item, str):
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        worker.cancel()


class _Worker(threading.Thread):
    """A thread with an event loop of its own: the caller may be inside another one, or have none."""

    def __init__(self, url: str, headers: Mapping[str, str], body: Mapping[str, Any], seconds: float) -> None:
        super().__init__(name="oomdoc-language-model", daemon=True)
        self.items: queue.SimpleQueue[str | Unavailable | None] = queue.SimpleQueue()
        self._request = (url, dict(headers), dict(body), max(seconds, 0.01))
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._exchange())
        except Unavailable as error:
            self.items.put(error)
        except TimeoutError:
            self.items.put(Unavailable("timeout"))
        except httpx.TimeoutException:
            self.items.put(Unavailable("timeout"))
        except (OSError, httpx.HTTPError, httpx.InvalidURL, RuntimeError, ValueError) as error:
            self.items.put(Unavailable("unreachable", type(error).__name__))
        except asyncio.CancelledError:
            self.items.put(Unavailable("unreachable", "cancelled"))
        else:
            self.items.put(None)

    def cancel(self) -> None:
        """Nobody waits for the rest."""
        with self._lock:
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    async def _exchange(self) -> None:
        task = asyncio.current_task()
        with self._lock:
            self._running = (asyncio.get_running_loop(), task) if task is not None else None
        try:
            await self._posted()
        finally:
            with self._lock:
                self._running = None

    async def _posted(self) -> None:
        url, headers, body, seconds = self._request
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(follow_redirects=False, timeout=seconds) as client,
            client.stream("POST", url, json=body, headers=headers) as response,
        ):
            if response.status_code != 200:
                raise Refusal(response.status_code, await _start_of(response))
            held = bytearray()
            size = 0
            async for chunk in response.aiter_bytes():
                size += len(chunk)
                if size > _ANSWER_BYTES:
                    raise Unavailable("too-large")
                held += chunk
                *whole, rest = held.split(b"\n")
                held = bytearray(rest)
                for line in whole:
                    self.items.put(line.decode("utf-8", "replace"))
            self.items.put(held.decode("utf-8", "replace"))


async def _start_of(response: httpx.Response) -> str:
    held = bytearray()
    async for chunk in response.aiter_bytes():
        held += chunk
        if len(held) > _REFUSAL_BYTES:
            break
    return held[:_REFUSAL_BYTES].decode("utf-8", "replace")
