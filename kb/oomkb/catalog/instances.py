"""Cloud machines by the names under which they are rented, and the cards that each holds: ``data/instances.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from oomkb.errors import CatalogError
from oomkb.kept import lazy
from oomkb.tables import read_table, spellings

_DATA: Final = Path(__file__).parent / "data" / "instances.toml"
_NAME: Final = lazy(
    r"(?<![\w.-])(?:ml\.|ecs\.|standard_)?([a-z]{1,2}\d{1,2}[a-z]{0,5}(?:[._-][a-z0-9]{1,10}){0,4})", re.A
)
_HINT: Final = lazy(
    r"[a-z\d]\.x?large|\dx?large|\d\.metal|(?:high|ultra|mega)gpu|g2-standard|_v[2-5]\b|\bp[345][de]|\bg(?:n[67]|4dn|6e)",
    re.A,
)
"""What every name of the table holds: most texts name no such machine."""


class Machine(NamedTuple):
    """A rented machine."""

    card: str
    """A card of the catalogue."""
    cards: int | None
    """How many of it; ``None`` where the name leaves the machine's size open."""


@cache
def machines() -> dict[str, Machine]:
    """Every machine and every family of machines by its name.

    :raises CatalogError: for a name that stands there twice, or counts that are none.
    """
    found: dict[str, Machine] = {}
    for provider, table in read_table(_DATA).items():
        sized = [
            (name, Machine(card, int(n)))
            for card, by in table["cards"].items()
            for n, names in by.items()
            for name in names.split()
        ]
        sized += [(name, Machine(card, None)) for name, card in spellings(dict(table["families"].items()))]
        for name, machine in sized:
            if found.setdefault(name, machine) is not machine:
                raise CatalogError("the machine stands there twice", where=f"{provider}: {name}")
    return found


def find_all(text: str) -> Iterator[tuple[int, int, Machine]]:
    """The machines that a text names, with where each name stands."""
    low = text.lower()
    if len(low) != len(text) or _HINT.search(low) is None:
        return
    for named in _NAME.finditer(low):
        name = named[1].rstrip("._-")
        machine = machines().get(name) or machines().get(re.split(r"[.-](?=[c\d])", name)[0])
        if machine is not None:
            yield named.start(), named.start(1) + len(name), machine
