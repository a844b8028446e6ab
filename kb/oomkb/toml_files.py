"""TOML files of the packages, parsed once for all processes: the parsed form is kept as JSON in the state folder.

Parsing TOML costs a cold start more than anything else that reads data. A kept file counts only while its size and
its time of change are those it was parsed with; where the state folder cannot be written, nothing is kept.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomkb.errors import OomdocError
from oomkb.state import state_dir, write_atomically

__all__ = ["read_toml"]

_KEPT: Final = "tables.json"
_FORMAT: Final = 1
_MAX_KEPT_FILES: Final = 1000
"""Files beyond which those that this process did not ask for are forgotten."""
_asked: dict[str, list[Any]] = {}


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a file, a fresh one at each call.

    :raises OSError: where it cannot be read.
    :raises tomllib.TOMLDecodeError: where it is not TOML.
    """
    found = path.stat()
    name, mark = str(path.resolve()), [found.st_size, found.st_mtime_ns]
    entry = _asked.get(name) or _kept().get(name)
    if entry is None or entry[0] != mark:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
        # Dates and numbers beyond JSON are read anew each time: no table of ours has them.
        with contextlib.suppress(TypeError, ValueError):
            entry = [mark, json.dumps(table, ensure_ascii=False, allow_nan=False)]
            if not _asked:
                atexit.register(_keep)
            _asked[name] = entry
        return table
    out: dict[str, Any] = json.loads(entry[1])
    return out


@cache
def _kept() -> dict[str, list[Any]]:
    with contextlib.suppress(OSError, OomdocError, ValueError, KeyError, TypeError):
        body = json.loads((state_dir() / _KEPT).read_bytes())
        if body["format"] == _FORMAT and isinstance(body["files"], dict):
            return dict(body["files"])
    return {}


def _keep() -> None:
    """Write what was parsed by this process beside what was kept before."""
    files = {**(_kept() if len(_kept()) < _MAX_KEPT_FILES else {}), **_asked}
    text = json.dumps({"format": _FORMAT, "files": files}, ensure_ascii=False, separators=(",", ":"))
    with contextlib.suppress(OSError, OomdocError):
        write_atomically(state_dir() / _KEPT, text.encode())
