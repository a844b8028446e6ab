"""What is worked out once for all processes: entries by name, kept as one JSON file in the state folder.

Where the state folder cannot be written, nothing is kept.

Expressions that are compiled when first used, and once for all processes. A cold start needs a part of the hundreds
that modules define, and compiling it took a tenth of the time. What the compiler of :mod:`re` made is kept by
pattern, flags and Python release; the interpreter checks what it takes back.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import re
import sys
from array import array
from functools import cached_property
from importlib import import_module
from typing import Any, Final, cast

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


_KEPT: Final = Kept("expressions.json", sys.version, 2000)
_SRE: Final[Any] = import_module("_sre")


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As ``re.compile``, for an expression of the packages' own.

    :raises re.error: where the pattern is none.
    """
    key = f"{int(flags)}:{pattern}"
    entry = _KEPT.get(key)
    try:
        made, code, names = entry or _made(pattern, flags)
        groups: list[str | None] = [None] * (names["groups"] + 1)
        for name, number in names["names"].items():
            groups[number] = name
        units = array("I", bytes.fromhex(code)).tolist()
        found = _SRE.compile(pattern, made, units, names["groups"], names["names"], tuple(groups))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, RuntimeError, OverflowError):
        return re.compile(pattern, flags)  # another interpreter's inside, or a damaged file
    if entry is None:
        _KEPT.put(key, [made, code, names])
    return cast("re.Pattern[str]", found)


def _made(pattern: str, flags: int) -> tuple[int, str, dict[str, Any]]:
    """Flags, code and groups, as ``re.compile`` hands them on to the interpreter (3.11 to 3.14)."""
    parser, compiler = import_module("re._parser"), import_module("re._compiler")
    parsed = parser.parse(pattern, flags)
    code = array("I", compiler._code(parsed, flags)).tobytes().hex()
    return int(flags | parsed.state.flags), code, {"groups": parsed.state.groups - 1, "names": parsed.state.groupdict}


class _Lazy:
    """Stands for a compiled expression, and becomes one when anything is asked of it."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = compiled(*self._given)
        self.__dict__ |= {each: getattr(found, each) for each in dir(found) if not each.startswith("_")}
        return self.__dict__[name]


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As ``re.compile``, but compiled at the first search.

    :raises re.error: at that search, where the pattern is none; tests search with every one.
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))
