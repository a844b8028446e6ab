"""Access tokens: fetched when first needed, kept until shortly before they expire, fetched again when refused."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

_EARLY_S: Final = 300.0


class Tokens:
    """One app's token.

    :param fetch: asks the platform; returns the token and for how many seconds it holds.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[tuple[str, float]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._token = ""
        self._until_s = 0.0

    async def get(self) -> str:
        """A token that still holds. Two callers at once may both fetch one: either is good."""
        if not self._token or self._clock() >= self._until_s:
            token, holds_s = await self._fetch()
            self._token, self._until_s = token, self._clock() + max(holds_s - _EARLY_S, 0.0)
        return self._token

    def forget(self, token: str) -> None:
        """After the platform has refused it."""
        if self._token == token:
            self._token = ""
