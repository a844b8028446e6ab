"""The words and marks around a card's name, for :mod:`oomkb.catalog.gpu_text`: the tables of ``gpu_words.toml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oomkb.catalog.gpu_data import words
from oomkb.kept import lazy
from oomkb.tables import read_table

_FLAGS: Final = {"any_case_ascii": re.I | re.A, "any_case": re.I, "as_written": re.NOFLAG}
_TABLE: Final = read_table(Path(__file__).with_suffix(".toml"), *_FLAGS, "unknown_variant", "words", "same", "numerals")
_WORDS: Final = {name: words(listed) for name, listed in _TABLE["words"].items()}
RE: Final[Mapping[str, re.Pattern[str]]] = {
    name: lazy(pattern, flags) for section, flags in _FLAGS.items() for name, pattern in _TABLE[section].items()
}
"""The expressions by name, compiled when first used."""
UNKNOWN_VARIANT: Final = {vendor: lazy(pattern, re.I) for vendor, pattern in _TABLE["unknown_variant"].items()}
"""By vendor, what stands behind a name and makes it another product."""
PRODUCT_WORDS: Final = _WORDS["product_words"]
VENDOR_WORDS: Final = _WORDS["vendor_words"]
NEUTRAL: Final = _WORDS["neutral"]
CARD_WORDS: Final = _WORDS["card_words"]
BOX_SIZES_GB: Final = frozenset(map(int, _WORDS["box_sizes_gb"]))
"""Sizes that cards and chips are sold with."""
TIES: Final = frozenset({"-", "_", "(", " (", "（"})
"""What ties a size without a unit to a card's name: ``A100-40``, ``A100 (40)``."""
SAME: Final[Mapping[str, str]] = _TABLE["same"]
NUMERALS: Final[Mapping[str, int]] = _TABLE["numerals"]
