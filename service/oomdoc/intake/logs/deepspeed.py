"""DeepSpeed: memory lines (``MA``, ``CA``), estimates, cache flushes, and what its optimizer says it does."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "deepspeed",
    (
        "max_ma",
        "pytorch allocator cache flushes",
        "model with",
        "zero optimizer",
        "deepspeedcpuadam",
        "cpu_adam",
        "deepspeed basic optimizer",
        "using deepspeed optimizer",
        "allocating kv-cache",
    ),
    (
        rule(
            "deepspeed-memory",
            r"MA (?P<allocated__n>[\d.]{1,9}) (?P<allocated__u>GB)\s{1,12}Max_MA (?P<peak__n>[\d.]{1"
            r",9}) (?P<peak__u>GB)\s{1,12}CA (?P<reserved__n>[\d.]{1,9}) (?P<reserved__u>GB)\s{1,12}"
            r"Max_CA (?P<reserved_peak__n>[\d.]{1,9}) (?P<reserved_peak__u>GB)",
        ),
        rule("deepspeed-cache-flushes", r"(?P<flushes__i>\d{1,6}) pytorch allocator cache flushes since last step"),
        rule("deepspeed-estimate", r"Model with (?P<params_m__i>\d{1,8})M total params"),
        rule(
            "deepspeed-optimizer",
            r"Creating (?:torch\.)?\w{1,20} ZeRO (?:stage )?(?P<stage__i>[1-3])? ?(?:stage 2 )?optim"
            r"izer",
            None,
            facts={"stage": "zero_stage"},
        ),
        rule("fastgen-cache", r"Allocating KV-cache \d{1,3} with shape: \((?P<shape>\d[\d, ]{4,80})\)"),
        rule("deepspeed-cpu-adam", r"DeepSpeedCPUAdam|cpu_adam op|Building extension module cpu_adam"),
    ),
    priority=60,
)
