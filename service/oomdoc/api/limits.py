"""How much a caller may ask: a token bucket per key or address, and a bound on what is worked on at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MAX_CALLERS: Final = 50_000


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
