"""Why there is no reply, and an endpoint that fails again and again is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import field
from typing import Final, Literal, get_args

from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError


@dataclass(slots=True)
class Budget:
    """Counts down from its making; shared by all calls that one request leads to."""

    seconds: float = 60.0
    tokens: int = 60_000
    """Prompts and replies together."""
    calls: int = 8
    spent_tokens: int = 0
    spent_calls: int = 0
    _started: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self._started)

    def take_call(self, prompt_tokens: int) -> None:
        """Count a call that is about to be made.

        :raises Unavailable: ``budget``, where one of the three does not allow it.
        """
        with self._lock:
            if self.left_s <= 0 or self.spent_calls >= self.calls:
                raise Unavailable("budget", "time" if self.left_s <= 0 else "calls")
            if self.spent_tokens + prompt_tokens > self.tokens:
                raise Unavailable("budget", "tokens")
            self.spent_calls += 1
            self.spent_tokens += prompt_tokens

    def take_reply(self, tokens: int) -> None:
        """Count what came back."""
        with self._lock:
            self.spent_tokens += tokens


Reason = Literal[
    "unreachable",  # no connection, or one that broke off
    "timeout",
    "refused",  # status 401 or 403: the key
    "busy",  # status 429
    "failed",  # any other status
    "too-large",
    "malformed",  # not what a completion looks like, or no JSON where JSON was asked for
    "cut-off",
    "declined",  # the model refuses to answer
    "budget",
    "paused",  # the circuit breaker is open
]
REASONS: Final[tuple[str, ...]] = get_args(Reason)
_COUNTED: Final = frozenset({"unreachable", "timeout", "refused", "busy", "failed"})
_FAILURES: Final = 3
_PAUSE_S: Final = 30.0


class Unavailable(OomdocError):
    """No reply that can be used; ``reason`` is one of :data:`REASONS`."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"the language model was not used: {reason}{f' ({detail})' if detail else ''}")
        self.reason: Reason = reason
        self.detail = detail


class Breaker:
    """Closed until three calls in a row fail, then open for 30 s; then one call is let through to see."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._closed_at = 0.0

    def check(self) -> None:
        """:raises Unavailable: ``paused`` while it is open."""
        with self._lock:
            if self._failed >= _FAILURES:
                if self._clock() < self._closed_at:
                    raise Unavailable("paused")
                self._closed_at = self._clock() + _PAUSE_S  # one call tries; the others wait for what it finds

    def record(self, reason: Reason | None) -> None:
        """What a call ended with; ``None``: a reply."""
        with self._lock:
            if reason is None:
                self._failed = 0
            elif reason in _COUNTED:
                self._failed += 1
                self._closed_at = self._clock() + _PAUSE_S


_BREAKERS: Final[dict[str, Breaker]] = {}
_MAX_ENDPOINTS: Final = 64
_LOCK: Final = threading.Lock()


def breaker_of(url: str) -> Breaker:
    """The breaker of an endpoint, one for all callers of this process."""
    with _LOCK:
        if url not in _BREAKERS and len(_BREAKERS) >= _MAX_ENDPOINTS:
            _BREAKERS.clear()
        return _BREAKERS.setdefault(url, Breaker())
