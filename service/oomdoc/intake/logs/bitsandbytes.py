"""bitsandbytes: errors of its CUDA calls, which end the process without a Python traceback."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "bitsandbytes",
    ("error out of memory at line", "pythoninterface", "csrc/ops", "error named symbol not found"),
    (rule("bitsandbytes-oom", r"Error out of memory at line \d{1,6} in file \S{1,200}", "device"),),
    priority=14,
)
