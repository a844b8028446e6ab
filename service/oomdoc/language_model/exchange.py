"""One request and its answer, as lines, within one limit of time and size."""

from __future__ import annotations

import time
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

    :param seconds: limit of the whole, looked at with every piece: an endpoint that drips cannot stretch it.
    :raises Unavailable: whatever goes wrong; :class:`Refusal` for a status that is not 200.
    """
    seconds = max(seconds, 0.01)
    ends = time.monotonic() + seconds
    try:
        with (
            httpx.Client(follow_redirects=False, timeout=seconds) as client,
            client.stream("POST", url, json=dict(body), headers=dict(headers)) as response,
        ):
            if response.status_code != 200:
                raise Refusal(response.status_code, _start_of(response))
            held, size = b"", 0
            for chunk in response.iter_bytes():
                size += len(chunk)
                if size > _ANSWER_BYTES or time.monotonic() > ends:
                    raise Unavailable("too-large" if size > _ANSWER_BYTES else "timeout")
                *whole, held = (held + chunk).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in whole)
            yield held.decode("utf-8", "replace")
    except httpx.TimeoutException as error:
        raise Unavailable("timeout") from error
    except (OSError, httpx.HTTPError, httpx.InvalidURL, RuntimeError, ValueError) as error:
        raise Unavailable("unreachable", type(error).__name__) from error


def _start_of(response: httpx.Response) -> str:
    held = b""
    for chunk in response.iter_bytes():
        held += chunk
        if len(held) > _REFUSAL_BYTES:
            break
    return held[:_REFUSAL_BYTES].decode("utf-8", "replace")
