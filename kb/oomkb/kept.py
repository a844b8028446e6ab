"""What is worked out once for all processes: entries by name, kept as one JSON file in the state folder.

Where the state folder cannot be written, nothing is kept.
"""

from __future__ import annotations

import atexit
import contextlib
import json
from functools import cached_property
from typing import Any

from oomkb.errors import OomdocError
from oomkb.state import state_dir, write_atomically


class Kept:
    """One such file; read when first asked, written when the process ends with something new.

    :param form: of what the entries are good for; those that were kept under another one are forgotten.
    :param most: entries beyond which those that this process did not make are forgotten.
    """

    def __init__(self, name: str, form: str, most: int) -> None:
        self._name, self._form, self._most = name, form, most
        self._made: dict[str, Any] = {}

    @cached_property
    def _known(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, OomdocError, ValueError, KeyError, TypeError):
            body = json.loads((state_dir() / self._name).read_bytes())
            if body["format"] == self._form and isinstance(body["files"], dict):
                return dict(body["files"])
        return {}

    def get(self, key: str) -> Any:
        """The entry, or ``None``."""
        return self._made.get(key) or self._known.get(key)

    def put(self, key: str, entry: Any) -> None:
        """Keep an entry, plain values, for later processes."""
        if not self._made:
            atexit.register(self.write)
        self._made[key] = entry

    def write(self) -> None:
        """Write what this process made beside what was kept before."""
        files = {**(self._known if len(self._known) < self._most else {}), **self._made}
        text = json.dumps({"format": self._form, "files": files}, ensure_ascii=False, separators=(",", ":"))
        with contextlib.suppress(OSError, OomdocError, UnicodeEncodeError):
            write_atomically(state_dir() / self._name, text.encode())
