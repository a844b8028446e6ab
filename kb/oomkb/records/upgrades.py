"""Older record formats: one function per step, from version n to n + 1, applied in order when a file is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from oomkb.errors import RecordError
from oomkb.records.case import SCHEMA

__all__ = ["UPGRADES", "upgraded"]

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: Final[Mapping[int, Upgrade]] = MappingProxyType({})
"""Version -> what turns a record of it into one of the next. Version 1 is the first, so there is none yet."""


def upgraded(
    document: Mapping[str, Any], *, upgrades: Mapping[int, Upgrade] = UPGRADES, current: int = SCHEMA
) -> dict[str, Any]:
    """The document in the current format.

    :raises RecordError: for a record that a newer program wrote, or one whose version no step leads on from.
    """
    version = document.get("schema", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise RecordError(f"{version!r} is no schema version", where="schema", hint=f"write schema: {current}")
    if version > current:
        raise RecordError(
            f"written for schema {version}; this program reads up to {current}", where="schema", hint="update oomdoc"
        )
    result = dict(document)
    for step in range(version, current):
        if step not in upgrades:
            raise RecordError(f"no upgrade from schema {step}", where="schema")
        result = {**upgrades[step](result), "schema": step + 1}
    return result
