"""Triton's ``OutOfResources``: a kernel that needs more on-chip memory than a multiprocessor has. Not out of memory."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "triton",
    ("out of resource", "outofresources", "too many resources requested"),
    (
        rule(
            "triton-out-of-resources",
            r"out of resources?: (?P<resource>[\w ]{1,40}), Required: (?P<required__n>\d{1,12}),? ?H"
            r"ardware limit: ?(?P<limit__n>\d{1,12})",
            "other",
        ),
        rule(
            "triton-out-of-resources",
            r"OutOfResources\b|out of resource: \w|too many resources requested for launch",
            "other",
        ),
    ),
    priority=15,
)
