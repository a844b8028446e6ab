"""TOML files of the packages, parsed once for all processes: the parsed form is kept as JSON in the state folder.

Parsing TOML costs a cold start more than anything else that reads data. A kept file counts only while its size and
its time of change are those it was parsed with.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Final

from oomkb.kept import Kept

_KEPT: Final = Kept("tables.json", "2", 1000)


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a file, a fresh one at each call.

    :raises OSError: where it cannot be read.
    :raises tomllib.TOMLDecodeError: where it is not TOML.
    """
    found = path.stat()
    name, mark = str(path.resolve()), [found.st_size, found.st_mtime_ns]
    entry = _KEPT.get(name)
    if entry is None or entry[0] != mark:
        import tomllib

        table = tomllib.loads(path.read_text(encoding="utf-8"))
        # Dates and numbers beyond JSON are read anew each time: no table of ours has them.
        with contextlib.suppress(TypeError, ValueError):
            _KEPT.put(name, [mark, json.dumps(table, ensure_ascii=False, allow_nan=False)])
        return table
    out: dict[str, Any] = json.loads(entry[1])
    return out
