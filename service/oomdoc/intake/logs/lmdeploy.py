"""lmdeploy (TurboMind and its PyTorch engine)."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "lmdeploy",
    ("turbomind", "blockmanager", "no enough gpu memory", "cache_max_entry_count", "no enough blocks", "[tm]["),
    (
        rule(
            "lmdeploy-oom",
            r"\[TM\]\[(?:ERROR|FATAL)\].{0,120}out of memory|turbomind.{0,200}out of memory",
            "device",
            phase="engine-init",
        ),
        rule(
            "lmdeploy-no-blocks",
            r"No enough (?:gpu memory|blocks)(?: for runtime)?|\[BlockManager\].{0,60}(?:OOM"
            r"|max_block_count = 0)",
            "device",
            phase="engine-init",
        ),
        rule("lmdeploy-blocks", r"\[BlockManager\] max_block_count ?= ?(?P<blocks__i>\d{1,9})"),
    ),
    priority=24,
)
