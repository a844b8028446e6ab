"""One file per error family; :data:`PARSERS` is the list of them, in the order of their names."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs import torch_cuda
from oomdoc.intake.logs.base import Parser, Reading, Window

__all__ = ["PARSERS", "Parser", "Reading", "Window"]

PARSERS: Final[tuple[Parser, ...]] = (torch_cuda.PARSER,)
