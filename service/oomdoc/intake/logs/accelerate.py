"""Accelerate and transformers: a model that finds no room on the devices it is dispatched to."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "accelerate",
    ("offload_dir", "dispatched on the cpu", "enough gpu ram", "need to be offloaded"),
    (
        rule(
            "dispatch-too-large",
            r"We need an `?offload_dir`? to dispatch this model|submodules need to be offloaded"
            r"|Some modules are dispatched on the CPU or the disk|enough GPU RAM to fit the (?:quantized )?model",
            "device",
            phase="load",
        ),
    ),
    priority=46,
)
