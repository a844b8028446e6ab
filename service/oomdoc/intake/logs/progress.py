"""How far a job came: progress bars, steps, epochs; the last one before a failure is the step at which it failed."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "progress",
    ("it/s", "s/it", "epoch", "iteration", "global_step", "step "),
    (
        rule("progress", r"(?P<share__i>\d{1,3})%\|.{0,60}\| {0,2}(?P<step__i>\d{1,9})/(?P<of__i>\d{1,9}) \["),
        rule(
            "progress",
            r"(?:Epoch|epoch)\W{0,4}\[?\d{1,5}(?:/\d{1,5})?\]?\W{1,6}(?P<step__i>\d{1,9}) ?/ ?(?P<of"
            r"__i>\d{1,9})",
        ),
        rule(
            "progress",
            r"(?:global_step|iteration|(?<![a-z])step)[ =:]{1,3}(?P<step__i>\d{1,9})(?: ?/ ?(?P<of__"
            r"i>\d{1,9}))?(?![\d.])",
        ),
    ),
    priority=90,
    repeats=True,
)
