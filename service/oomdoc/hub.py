"""Looking a model's ``config.json`` up on a hub: optional, asked for by name, cached for good, never needed."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oomkb.catalog.models import ModelEntry, add_model
from oomkb.errors import CatalogError

if TYPE_CHECKING:
    import httpx

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")
_LIMIT_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 10.0


def add_from_hub(name: str, *, client: httpx.Client | None = None) -> ModelEntry:
    """Fetch ``name``'s config.json from the hub (``OOMDOC_HUB``, ``HF_TOKEN``) into the person's own models.

    :raises CatalogError: for a name that is none, or a hub that does not answer with a configuration.
    """
    import httpx

    if not _NAME.match(name):
        raise CatalogError(f"{name!r} is no hub id", where="model", hint="write it as owner/name")
    base = os.environ.get("OOMDOC_HUB", "https://huggingface.co").rstrip("/")
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token and base.startswith("https://") else {}
    own = client is None
    client = client or httpx.Client(timeout=_TIMEOUT_S, follow_redirects=True, max_redirects=3)
    try:
        answer = client.get(f"{base}/{name}/resolve/main/config.json", headers=headers)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        hint = "add the file with `oomdoc model add config.json`; a gated model needs HF_TOKEN"
        raise CatalogError(f"the hub does not give its config.json: {error}", where=name, hint=hint) from error
    finally:
        if own:
            client.close()
    return _added(name, answer.content)


def _added(name: str, content: bytes) -> ModelEntry:
    if len(content) > _LIMIT_BYTES:
        raise CatalogError("this config.json is larger than 1 MiB", where=name)
    try:
        json.loads(content)
    except ValueError as error:
        raise CatalogError("what the hub gave is not JSON", where=name) from error
    with tempfile.TemporaryDirectory(prefix="oomdoc-") as folder:
        path = Path(folder) / "config.json"
        path.write_bytes(content)
        return add_model(path, name=name)
