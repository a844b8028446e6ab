"""What a program asks of the allocator, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

ALLOC: Final = "alloc"
FREE: Final = "free"
USE: Final = "use"
"""A block is used on another stream (``record_stream``)."""
COMPLETE: Final = "complete"
"""The work that a stream was given so far is done."""
EMPTY: Final = "empty"
MARK: Final = "mark"
"""A point of the program with a name."""


class Event(NamedTuple):
    """One event; ``number`` names the block."""

    what: str
    number: int = 0
    size: int = 0
    stream: int = 0
    name: str = ""


class Recorder:
    """Collects events; blocks are counted up."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._next = 0

    def alloc(self, size: float, name: str, stream: int = 0) -> int:
        """A block of ``size`` bytes; 0 for none."""
        whole = round(size)
        if whole <= 0:
            return 0
        self._next += 1
        self.events.append(Event(ALLOC, self._next, whole, stream, name))
        return self._next

    def each(self, sizes: Sequence[float], name: str, stream: int = 0) -> list[int]:
        """A block for each size."""
        return [self.alloc(size, name, stream) for size in sizes]

    def free(self, *numbers: int) -> None:
        """Let blocks go."""
        self.events += [Event(FREE, number) for number in numbers if number]

    def use(self, number: int, stream: int) -> None:
        """A block is used on another stream."""
        self.events.append(Event(USE, number, stream=stream))

    def complete(self, stream: int) -> None:
        """A stream has caught up."""
        self.events.append(Event(COMPLETE, stream=stream))

    def empty(self) -> None:
        """``empty_cache``."""
        self.events.append(Event(EMPTY))

    def mark(self, name: str) -> None:
        """Name this point."""
        self.events.append(Event(MARK, name=name))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)
