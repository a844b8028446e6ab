"""Tables of knowledge that come with the package: TOML files, read with the place of what is wrong in them.

TOML files of the packages, parsed once for all processes: the parsed form is kept as JSON in the state folder.
Parsing TOML costs a cold start more than anything else that reads data. A kept file counts only while its size and
its time of change are those it was parsed with.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from oomkb.errors import CatalogError
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


def read_table(path: Path, *sections: str) -> dict[str, Any]:
    """The TOML file at ``path``.

    :param sections: the tables it must have, and no other; none named: any.
    :raises CatalogError: naming the file, for one that is not TOML or has other sections.
    """
    try:
        found = read_toml(path)
    except (OSError, ValueError) as error:
        raise CatalogError(f"cannot be read: {error}", where=str(path)) from error
    if sections and set(found) != set(sections):
        odd = ", ".join(sorted(set(found) ^ set(sections)))
        raise CatalogError(f"its sections are not {', '.join(sections)}: {odd}", where=str(path))
    return found


def spellings(section: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(spelling, name) for each of the words, apart by blanks, that a section lists for a name.

    :raises CatalogError: for a word that two names have.
    """
    seen: dict[str, str] = {}
    for name, words in section.items():
        for word in words.split():
            if seen.setdefault(word, name) != name:
                raise CatalogError(f"{word} stands for {seen[word]} and for {name}", where=word)
            yield word, name
