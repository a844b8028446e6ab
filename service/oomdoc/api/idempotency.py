"""Idempotency keys: the same key and body get the first answer again; the same key with another body is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from fastapi.responses import Response
from starlette.datastructures import Headers

from oomdoc.api.work import Work
from oomdoc.store.store import Conflict
from oomkb.errors import InputError

__all__ = ["once"]


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
    known = work.store().remembered(key)
    if known is None:
        response = json.dumps(run(), ensure_ascii=False)
        work.store().remember(key, digest, status, response)
        return _json(response, status)
    if known[0] != digest:
        raise Conflict("this key was used with another body", where="Idempotency-Key", hint="use a new key")
    return _json(known[2], known[1])


def _json(text: str, status: int) -> Response:
    return Response(text, status_code=status, media_type="application/json")
