"""Tables of knowledge that come with the package: TOML files, read with the place of what is wrong in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oomkb.errors import CatalogError
from oomkb.toml_files import read_toml


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
