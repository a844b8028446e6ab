"""Adding one name to a package's explicit list: to its import block and to its tuple, both kept sorted."""

from __future__ import annotations

import re
from typing import Final

from oomkb.errors import InputError

__all__ = ["register"]

_ITEM: Final = re.compile(r"^    (\w{1,80})((?:\.\w{1,80})?),$")


def register(text: str, *, package: str, tuple_name: str, name: str, suffix: str, where: str) -> str:
    """The source of an ``__init__.py`` with ``name`` imported from ``package`` and listed in ``tuple_name``.

    :raises InputError: where the file no longer has the form of a list, or knows the name already.
    """
    lines = text.splitlines()
    imports = _block(lines, lambda line: line == f"from {package} import (", where)
    if f"    {name}," in lines[imports[0] : imports[1]]:
        raise InputError(f"{name} is already listed", where=where, hint="choose another name")
    _insert(lines, imports, f"    {name},", name)
    listed = _block(lines, lambda line: line.startswith(tuple_name) and line.endswith("= ("), where)
    _insert(lines, listed, f"    {name}{suffix},", name)
    return "\n".join(lines) + "\n"


def _block(lines: list[str], opens, where: str) -> tuple[int, int]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    for start, line in enumerate(lines):
        if opens(line):
            end = next((i for i in range(start + 1, len(lines)) if lines[i] == ")"), None)
            if end is not None:
                return start + 1, end
    raise InputError("this file has no list to add to", where=where, hint="add the line by hand")


def _insert(lines: list[str], block: tuple[int, int], line: str, name: str) -> None:
    for index in range(*block):
        match = _ITEM.match(lines[index])
        if match and match[1] > name:
            lines.insert(index, line)
            return
    lines.insert(block[1], line)
