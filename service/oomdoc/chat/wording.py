"""How people speak in a conversation: the expressions of ``wording.toml``, by the module that reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oomdoc.intake.numbers import NUMBER
from oomkb.tables import read_table

_TABLE: Final = read_table(Path(__file__).with_suffix(".toml"))
_PART: Final = re.compile(r"@(\w+)@")


def filled(text: str, parts: Mapping[str, str]) -> str:
    """The expression with its parts in it, on one line."""
    while _PART.search(text):
        text = _PART.sub(lambda m: f"(?:{parts[m[1]]})", text)
    return text.replace("\n", "")


def patterns(section: str) -> Mapping[str, re.Pattern[str]]:
    """The expressions of a section."""
    parts = {**_TABLE["parts"], "number": NUMBER}
    return {name: re.compile(f"(?i){filled(text, parts)}") for name, text in _TABLE[section].items()}


def words(section: str) -> frozenset[str]:
    """The words that a section lists."""
    return frozenset(word for text in _TABLE[section].values() for word in text.split())
