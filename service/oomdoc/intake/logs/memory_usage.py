"""Memory that jobs print about themselves: allocated and reserved before and after something, used of total."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

_STATE: Final = {
    "capacity_bytes": "capacity_gib",
    "free_bytes": "free_gib",
    "allocated_bytes": "allocated_gib",
    "reserved_bytes": "reserved_gib",
}
_GB: Final = r"(?:[\"']?: |=)"

PARSER: Final[Parser] = rules_parser(
    "memory_usage",
    (
        "allocated_gb",
        "memory allocated",
        "allocated memory is",
        "memory_allocated",
        "max_memory",
        "memory usage",
        "used_gb",
        "gb_free",
        "peak memory",
        "vllm offload",
        "memory is still in use",
        "mem usage",
        "cuda memory",
        "gpu mem",
        "avail mem",
        "mem allocated",
        "mem_allocated",
        "memory used",
        "mem used",
        "mem_used",
    ),
    (
        rule(
            "memory-usage",
            rf"total_GB{_GB}(?P<capacity__g>[\d.]{{1,9}}), ?[\"']?free_GB{_GB}(?P<free__g>[\d.]{{1,9"
            rf"}}), ?[\"']?used_GB{_GB}(?P<used__g>[\d.]{{1,9}}), ?[\"']?allocated_GB{_GB}(?P<allocat"
            rf"ed__g>[\d.]{{1,9}}), ?[\"']?reserved_GB{_GB}(?P<reserved__g>[\d.]{{1,9}})",
            None,
            facts=_STATE,
            confidence=0.6,
        ),
        rule(
            "memory-usage",
            rf"(?:After|Before) (?P<what>[\w \-]{{1,60}}?)[:,] {size('used')} / {size('capacity')}",
            None,
            facts={"capacity_bytes": "capacity_gib"},
            confidence=0.6,
        ),
        rule(
            "memory-usage",
            r"memory allocated \(GB\): (?P<allocated__g>[\d.]{1,12}), memory reserved \(GB\): (?P<re"
            r"served__g>[\d.]{1,12})",
        ),
        rule(
            "memory-usage",
            r"memory_allocated: ?(?P<allocated__g>[\d.]{1,22}) {1,4}memory_reserved: {0,3}(?P<reserv"
            r"ed__g>[\d.]{1,22})",
        ),
        rule(
            "memory-usage",
            rf"(?:peak|max(?:imum)?)[ _](?:gpu |cuda )?(?:memory|mem)(?:[ _]\w{{1,12}}){{0,2}}\W{{1,4"
            rf"}}{size('peak')}",
        ),
        rule("memory-usage", rf"(?:memory|mem)[ _](?:allocated|used|usage)\W{{1,4}}{size('allocated')}"),
        rule(
            "memory-usage",
            r"reserved memory is (?P<reserved__g>[\d.]{1,12})(?: ?GB)? and allocated memory is (?P<a"
            r"llocated__g>[\d.]{1,12})",
            None,
            facts=_STATE,
            confidence=0.6,
        ),
        rule("memory-usage", r"gb_free=(?P<free__g>[\d.]{1,8})"),
    ),
    priority=75,
)
