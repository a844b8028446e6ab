"""JAX and XLA: RESOURCE_EXHAUSTED on GPU and TPU, and rematerialisation that could not help."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

_G: Final = "[KMGT]i?B?|bytes?"

PARSER: Final[Parser] = rules_parser(
    "jax_xla",
    (
        "resource_exhausted",
        "hbm capacity",
        "hlo_rematerialization",
        "xlaruntimeerror",
        "bfc_allocator",
        "out of memory in memory space",
        "out of memory while trying to allocate",
        "out of memory allocating",
        "attempting to reserve",
        "attempting to allocate",
    ),
    (
        rule(
            "xla-hbm-exhausted",
            rf"Ran out of memory in memory space \w{{1,12}}\. Used {size('needed', _G)} of "
            rf"{size('capacity', _G)} hbm(?:\. Exceeded hbm capacity by {size('over', _G)})?",
            "device",
            facts={"capacity_bytes": "capacity_gib"},
            lines=1,
        ),
        rule(
            "xla-oom",
            r"(?:Out of memory (?:while trying to allocate|allocating)|Failed to allocate request fo"
            rf"r) {size('requested', _G)}",
            "device",
        ),
        rule(
            "xla-hbm-exhausted",
            rf"Attempting to (?:reserve|allocate) {size('requested', _G)}.{{0,60}}?There are {size('free', _G)} free",
            "device",
            lines=1,
        ),
        rule(
            "xla-remat-insufficient",
            rf"Can't reduce memory use below {size('floor', _G)}(?:.{{0,40}}by rematerialization; onl"
            rf"y reduced to {size('reached', _G)})?",
            "device",
        ),
        rule("xla-remat-insufficient", r"Can't reduce memory use below -?\d", "device"),
        rule("xla-oom", r"RESOURCE_EXHAUSTED(?!.{0,200}memory space [sv]mem)", "device"),
    ),
    priority=28,
)
