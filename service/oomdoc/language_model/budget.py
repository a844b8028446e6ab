"""What one request may spend on a language model: seconds, tokens, calls."""

from __future__ import annotations

import threading
import time
from dataclasses import field

from oomdoc.language_model.failing import Unavailable
from oomkb.dataclass import dataclass


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
