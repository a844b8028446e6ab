"""A connection to PostgreSQL that gives up on a server that does not answer.

A server whose process is stopped still acknowledges what arrives, so neither its own limit on a statement nor those of
the network ever end the wait.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg

T = TypeVar("T")
_PATIENCE_S: Final = 6.0
"""A little longer than a statement may take by the server's own limit."""


class TimedConnection(psycopg.Connection[Any]):
    """Closes itself where the server says nothing for longer than a statement may take."""

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, timeout: float | None = None) -> T:
        """As of any connection.

        :raises psycopg.OperationalError: after six seconds without an answer.
        """
        try:
            return super().wait(gen, interval, _PATIENCE_S if timeout is None else min(timeout, _PATIENCE_S))
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()
            raise psycopg.OperationalError("the server does not answer") from error
