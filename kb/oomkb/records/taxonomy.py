"""The causes a case can be filed under, and the other words a record may use: ``taxonomy.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oomkb.tables import read_table

_TABLE: Final = read_table(Path(__file__).with_name("taxonomy.toml"), "phases", "frameworks", "causes")
CAUSES: Final[Mapping[str, tuple[str, str]]] = {name: (row["en"], row["zh"]) for name, row in _TABLE["causes"].items()}
"""Cause -> (definition in English, in Chinese); the folder names under ``cases/``."""
PHASES: Final = tuple(_TABLE["phases"].split())
FRAMEWORKS: Final = frozenset(_TABLE["frameworks"].split())
"""Names of frameworks and libraries in lower case, as records write them."""
STATUSES: Final = ("confirmed-by-reporter", "confirmed-by-maintainer", "arithmetic", "suggested", "unknown")
"""How sure a fix is: tried and reported, stated by those who keep the code, computed, proposed, not known."""


def definition(cause: str, language: str = "en") -> str:
    """One line on a cause.

    :raises KeyError: for what is no cause.
    """
    return CAUSES[cause][1 if language == "zh" else 0]
