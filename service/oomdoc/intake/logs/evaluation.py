"""The Trainer's banner of an evaluation, which says how many samples one goes through.

transformers 4.0-5.23, ``trainer.py``, ``evaluation_loop``: ``***** Running Evaluation *****``, and on the next line
``Num examples = N``. A training's banner has a line of the same wording, of the training set.
"""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "evaluation",
    ("running evaluation",),
    (
        rule(
            "evaluation-started",
            r"\*{3,9} ?Running Evaluation ?\*{3,9}.{0,160}?\bNum examples ?= ?(?P<samples__i>\d[\d,]{0,11})",
            facts={"samples": "extra.eval_samples"},
            lines=2,
        ),
    ),
    priority=90,
    repeats=True,
)
