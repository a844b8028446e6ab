"""Idempotency keys: the same key and body get the first answer again; the same key with another body is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any, Final

from fastapi.responses import Response
from starlette.datastructures import Headers

from oomdoc.api.work import Work
from oomdoc.store.store import Conflict, StoreDown
from oomkb.errors import InputError

__all__ = ["once"]

# How long the second of two requests with one key waits for the answer of the first.
_WAIT_S: Final = 10.0
_POLL_S: Final = 0.05


def once(work: Work, headers: Headers, body: str, status: int, run: Callable[[], dict[str, Any]]) -> Response:
    """Run a write at most once per ``Idempotency-Key``.

    :raises Conflict: where the key was used with another body.
    """
    key = headers.get("idempotency-key")
    if key is None:
        return _json(json.dumps(run(), ensure_ascii=False), status)
    if not 8 <= len(key) <= 200 or not key.isprintable():
        raise InputError("a key has 8 to 200 printable characters", where="Idempotency-Key")
    digest = hashlib.sha256(body.encode()).hexdigest()
    store = work.store()
    until = time.monotonic() + _WAIT_S
    while (known := store.claim(key, digest)) is not None:
        if known.body_sha256 != digest:
            raise Conflict("this key was used with another body", where="Idempotency-Key", hint="use a new key")
        if known.status:
            return _json(known.response, known.status)
        if time.monotonic() > until:
            raise Conflict("the request with this key still runs", where="Idempotency-Key", hint="try again")
        time.sleep(_POLL_S)
    try:
        response = json.dumps(run(), ensure_ascii=False)
    except BaseException:
        with contextlib.suppress(StoreDown):
            store.release(key)
        raise
    store.settle(key, status, response)
    return _json(response, status)


def _json(text: str, status: int) -> Response:
    return Response(text, status_code=status, media_type="application/json")
