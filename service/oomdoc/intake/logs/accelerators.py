"""Accelerators with runtimes of their own: Intel Gaudi (SynapseAI's bridge) and AWS Neuron (its driver, TDRV)."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "accelerators",
    ("devmem allocation", "failed to alloc device memory", "(usage: ", "dmem_alloc"),
    (
        rule("gaudi-oom", r"DEVMEM Allocation failed for size ?::? ?(?P<requested__n>\d{1,15})", "device"),
        rule(
            "neuron-oom",
            rf"Failed to allocate {size('requested')} \(usage: \w{{1,40}}\) on ND (?P<device__i>\d{{1,3}})",
            "device",
        ),
        rule("neuron-oom", r"Failed to alloc DEVICE memory: (?P<requested__n>\d{1,15})", "device"),
    ),
    priority=30,
)
