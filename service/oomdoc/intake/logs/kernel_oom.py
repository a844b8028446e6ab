"""The Linux kernel's out-of-memory killer: dmesg and journal lines."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

_SIZES: Final = (
    r"total-vm:(?P<virtual__n>\d{1,15})(?P<virtual__u>kB), anon-rss:(?P<anon__n>\d{1,15})(?P"
    r"<anon__u>kB), file-rss:(?P<file__n>\d{1,15})(?P<file__u>kB)(?:, shmem-rss:(?P<shmem__n"
    r">\d{1,15})(?P<shmem__u>kB))?"
)

PARSER: Final[Parser] = rules_parser(
    "kernel_oom",
    ("killed process", "oom-killer", "oom-kill:", "oom_reaper", "memory cgroup out of memory", "oom killer"),
    (
        rule(
            "kernel-oom-kill",
            rf"Killed process (?P<pid__i>\d{{1,10}}) \((?P<command>[^)]{{1,40}})\),? (?:UID \d{{1,9}}"
            rf" )?{_SIZES}",
            "host",
        ),
        rule(
            "kernel-oom-kill",
            r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process (?P<pid__i>\d{1,10}"
            r")(?: \((?P<command>[^)]{1,40})\))?",
            "host",
        ),
        rule(
            "kernel-oom-kill",
            r"\S{1,40} invoked oom-killer: gfp_mask|oom-kill:constraint=(?P<constraint>\w{1,40})"
            r"|oom_reaper: reaped process (?P<pid__i>\d{1,10})",
            "host",
        ),
    ),
    priority=20,
)
