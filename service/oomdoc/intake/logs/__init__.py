"""One file per error family: a table of rules (``<family>.toml``), or a module where rules are not enough."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from oomdoc.intake.logs import tensorflow, torch_cuda
from oomdoc.intake.logs.rules import Parser, parser_of

_CODED: Final = (tensorflow.PARSER, torch_cuda.PARSER)
_TABLES: Final = Path(__file__).parent.glob("*.toml")
PARSERS: Final[tuple[Parser, ...]] = tuple(sorted((*_CODED, *map(parser_of, _TABLES)), key=lambda one: one.name))
"""In the order of their names."""
