"""Slurm: cgroup kills of a step, memory limits, sacct states."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "slurm",
    ("oom_kill", "oom-kill event", "exceeded memory limit", "out_of_memory", "out of memory"),
    (
        rule("slurm-oom-kill", r"Detected (?P<events__i>\d{1,6}) oom[_-]kill event", "host"),
        rule(
            "slurm-memory-limit",
            r"exceeded (?:job |step )?memory limit(?: \((?P<used__i>\d{1,15}) > (?P<limit__i>\d{1,15"
            r"})\))?",
            "host",
        ),
        rule(
            "slurm-oom-kill",
            r"srun: error: \S{1,80}: tasks? [\d,\-\[\]]{1,40}: Out Of Memory"
            r"|\bOUT_OF_ME(?:MORY|\+)?(?=\s)(?!.{0,20}CUDA)|State\W{1,4}OUT_OF_MEMORY",
            "host",
        ),
    ),
    priority=22,
)
