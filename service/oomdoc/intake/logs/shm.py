"""/dev/shm too small: bus errors of data loaders, NCCL segments, NumPy and Ray object stores."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "shm",
    ("bus error", "shared memory", "/dev/shm", "shm_open", "posix_fallocate", "/torch_", "shared_memory", "plasma"),
    (
        rule(
            "shm-bus-error",
            r"DataLoader worker \(pid (?P<pid__i>\d{1,9})\) is killed by signal: Bus error"
            r"|workers are out of shared memory|Bus error \(core dumped\)|Unexpected bus error",
            "shared-memory",
        ),
        rule(
            "nccl-shm-failed",
            r"Error while (?:creating|attaching to) shared memory segment \S{1,120} \(size (?P<reque"
            r"sted__n>\d{1,15})\)|posix_fallocate failed: No space left|shared memory segment.{0,80}"
            r"(?:No space left|failed)",
            "shared-memory",
        ),
        rule(
            "shm-alloc-failed",
            r"unable to (?:open|mmap|resize|allocate|write).{0,60}(?:shared memory"
            r"|torch_|shm)|shm_open.{0,60}(?:fail|No space|Cannot allocate)"
            r"|No space left on device.{0,80}(?:shm|shared)|(?:/dev/shm|shm).{0,80}No space left",
            "shared-memory",
        ),
        rule(
            "shm-small-warning",
            r"/dev/shm.{0,80}(?:only|has) .{0,40}(?:bytes|[KMG]B)|object store is using /tmp instead"
            r" of /dev/shm",
            None,
        ),
    ),
    priority=25,
)
