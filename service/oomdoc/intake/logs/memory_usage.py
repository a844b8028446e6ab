"""Memory that jobs print about themselves: allocated and reserved before and after something, used of total."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

_GB: Final = r"(?:[\"']?: |=)"

PARSER: Final[Parser] = rules_parser(
    "memory_usage",
    ("allocated_gb", "memory allocated", "memory_allocated", "max_memory", "memory usage", "used_gb", "gb_free", "peak memory", "vllm offload", "memory is still in use", "mem usage", "cuda memory", "gpu mem", "avail mem"),
    (
        rule(
            "memory-usage",
            rf"total_GB{_GB}(?P<capacity__n>[\d.]{{1,9}})(?P<capacity__u>), ?[\"']?free_GB{_GB}(?P<free__n>[\d.]{{1,9}}), ?[\"']?used_GB{_GB}(?P<used__n>[\d.]{{1,9}}), ?[\"']?allocated_GB{_GB}(?P<allocated__n>[\d.]{{1,9}}), ?[\"']?reserved_GB{_GB}(?P<reserved__n>[\d.]{{1,9}})",
        ),
        rule("memory-usage", rf"(?:After|Before) (?P<what>[\w \-]{{1,60}}?)[:,] {size('used')} / {size('capacity')}"),
        rule("memory-usage", r"memory allocated \(GB\): (?P<allocated__f>[\d.]{1,12}), memory reserved \(GB\): (?P<reserved__f>[\d.]{1,12})"),
        rule("memory-usage", r"memory_allocated: ?(?P<allocated__f>[\d.]{1,22}) {1,4}memory_reserved: {0,3}(?P<reserved__f>[\d.]{1,22})"),
        rule("memory-usage", rf"(?:peak|max(?:imum)?)[ _](?:gpu |cuda )?(?:memory|mem)(?:[ _]\w{{1,12}}){{0,2}}\W{{1,4}}{size('peak')}"),
        rule("memory-usage", rf"(?:memory|mem)[ _](?:allocated|used|usage)\W{{1,4}}{size('allocated')}"),
        rule("memory-usage", r"gb_free=(?P<free__f>[\d.]{1,8})"),
    ),
    priority=75,
)
