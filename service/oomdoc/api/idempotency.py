"""Idempotency keys: the same key and body get the first answer again; the same key with another body is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from fastapi.responses import Response
from sqlalchemy import Connection
from starlette.datastructures import Headers

from oomdoc.api.work import Work
from oomkb.errors import InputError


def once(
    work: Work, headers: Headers, body: str, status: int, effect: Callable[[Connection], dict[str, Any]]
) -> Response:
    """Do a write at most once per ``Idempotency-Key``: key, effect and answer are one transaction.

    :param effect: writes through the connection that it is given, and nothing else; what it gives is the answer.
    :raises Conflict: where the key was used with another body.
    """
    key = headers.get("idempotency-key")
    store = work.store()
    if key is None:
        return _json(json.dumps(store.written(effect), ensure_ascii=False), status)
    if not 8 <= len(key) <= 200 or not key.isprintable():
        raise InputError("a key has 8 to 200 printable characters", where="Idempotency-Key")
    settled = store.once(key, hashlib.sha256(body.encode()).hexdigest(), status, effect)
    return _json(settled.response, settled.status)


def _json(text: str, status: int) -> Response:
    return Response(text, status_code=status, media_type="application/json")
