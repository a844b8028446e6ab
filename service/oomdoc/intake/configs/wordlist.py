"""Words as text: sets of names, and what spellings mean (``words.toml``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from oomkb.tables import read_table, spellings


def words(text: str) -> frozenset[str]:
    """The names in a text, apart by blanks."""
    return frozenset(text.split())


@cache
def _table() -> Mapping[str, Any]:
    return read_table(Path(__file__).with_name("words.toml"))


def listed(section: str) -> Mapping[str, Any]:
    """A section of ``words.toml`` as it stands there."""
    found: Mapping[str, Any] = _table()[section]
    return found


def word_set(name: str) -> frozenset[str]:
    """The names of a set."""
    return words(listed("set")[name])


def meanings(section: str) -> dict[str, str]:
    """What each spelling of a section means; of each meaning the spelling that is written comes first.

    :raises CatalogError: for a spelling of two meanings.
    """
    return dict(spellings(_table()[section]))
