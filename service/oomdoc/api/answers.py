"""Answers kept in memory for repeated requests: by the hash of what was sent, each worked out once at a time."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.exceptions import HTTPException

from oomkb.dataclass import dataclass

_MAX_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished diagnosis as it is sent and kept, but for its id."""

    text: str
    """A JSON object without ``id``."""
    warnings: tuple[str, ...]
    language: str
    input_masked: str
    verdict: str
    cause: str
    keep: bool = True
    lasts: bool = True
    """Whether the same request would be answered so again."""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return sum(map(sys.getsizeof, (self.text, self.input_masked, *self.warnings)))

    def document(self, identifier: str | None) -> str:
        """The JSON text with the id."""
        head = "null" if identifier is None else f'"{identifier}"'
        return f'{{"id": {head}, {self.text[1:]}'


def digest(*parts: bytes) -> bytes:
    """Of parts that may not run into each other."""
    found = hashlib.sha256()
    for part in parts:
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.digest()


class Answers:
    """The most recently used answers, bounded in number and in bytes. Safe to use from several threads."""

    def __init__(self, entries: int, most_bytes: int = _MAX_BYTES) -> None:
        self._entries = entries
        self._most_bytes = most_bytes
        self._kept: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._running: dict[bytes, asyncio.Future[Any]] = {}
        self._lock = threading.Lock()
        self._generation = 0

    def get(self, key: bytes) -> Any:
        """The answer, or ``None``."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    @property
    def generation(self) -> int:
        """Counts the times everything was forgotten."""
        return self._generation

    def put(self, key: bytes, answer: Any, size_bytes: int, *, generation: int) -> None:
        """Keep an answer, unless all were forgotten since ``generation``; the least recently used ones go."""
        with self._lock:
            if generation == self._generation:
                self._put(key, answer, size_bytes)

    async def once(self, key: bytes, work: Callable[[], Awaitable[tuple[Any, int]]]) -> Any:
        """The kept answer, or ``work``'s; who asks for the same meanwhile (on the same event loop) waits for the first.

        :param work: gives the answer and its size in bytes.
        """
        found = self.get(key)
        if found is not None:
            return found
        first = self._running.get(key)
        if first is not None:
            return await asyncio.shield(first)
        generation = self._generation
        mine: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        mine.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody else may be waiting
        self._running[key] = mine
        try:
            answer, size_bytes = await work()
        except BaseException as error:
            # A caller that went away takes nobody with it but those who may simply ask again.
            gone = isinstance(error, asyncio.CancelledError)
            mine.set_exception(HTTPException(503, "given up, try again", {"Retry-After": "1"}) if gone else error)
            raise
        finally:
            del self._running[key]
        self.put(key, answer, size_bytes, generation=generation)
        mine.set_result(answer)
        return answer

    def clear(self) -> None:
        """After the known cases have changed, every answer may differ; those being worked out are not kept."""
        with self._lock:
            self._generation += 1
            self._kept.clear()
            self._bytes = 0

    def _put(self, key: bytes, answer: Any, size_bytes: int) -> None:
        if self._entries == 0 or size_bytes > self._most_bytes // 4:
            return
        if key in self._kept:
            self._bytes -= self._kept.pop(key)[1]
        self._kept[key] = (answer, size_bytes)
        self._bytes += size_bytes
        while len(self._kept) > self._entries or self._bytes > self._most_bytes:
            _, (_, gone_bytes) = self._kept.popitem(last=False)
            self._bytes -= gone_bytes
