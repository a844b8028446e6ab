"""Text Generation Inference: warm-up, shards that die, and the launcher's advice."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "tgi",
    (
        "not enough memory to handle",
        "method warmup",
        "shard process was signaled",
        "cuda is out of memory",
        "text_generation",
    ),
    (
        rule(
            "tgi-warmup-too-large",
            r"Not enough memory to handle (?P<tokens__i>\d{1,9}) (?:total"
            r"|prefill) tokens",
            "device",
            phase="engine-init",
        ),
        rule("tgi-warmup-failed", r"Method Warmup encountered an error", "device", phase="engine-init"),
        rule("tgi-oom", r"CUDA is out of memory", "device"),
        rule("tgi-shard-killed", r"Shard process was signaled to shutdown with signal 9", "host"),
    ),
    priority=45,
)
