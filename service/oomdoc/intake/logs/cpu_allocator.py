"""Host memory that an allocator could not get: PyTorch's CPU allocator, pinned memory, numpy, Python, Arrow."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "cpu_allocator",
    (
        "defaultcpuallocator",
        "cannot allocate memory",
        "mlock failed",
        "memoryerror",
        "std::bad_alloc",
        "unable to allocate",
        "pin_memory",
        "cudahostalloc",
        "cudahostregister",
        "arrowmemoryerror",
        "hosterror",
        "paging file",
        "can't allocate memory",
    ),
    (
        rule("cpu-allocator-oom", r"you tried to allocate (?P<requested__n>\d{1,20}) bytes", "host"),
        rule("cpu-allocator-oom", r"DefaultCPUAllocator: (?:can'?t|not enough) (?:allocate )?memory", "host"),
        rule(
            "pinned-memory-oom",
            r"mlock failed to allocate (?P<requested__n>\d{1,20}) bytes|cudaHost(?:Alloc"
            r"|Register)\S{0,40}.{0,60}(?:out of memory|failed)|(?:pin_memory"
            r"|pinned).{0,80}out of memory",
            "host",
        ),
        rule("numpy-oom", rf"Unable to allocate {size('requested')} for an array", "host"),
        rule("paging-file-too-small", r"paging file is too small", "host"),
        rule(
            "host-alloc-failed",
            r"(?:\b|_Array)MemoryError\b|std::bad_alloc|ArrowMemoryError|OSError: \[Errno 12\]"
            r"|Cannot allocate memory",
            "host",
        ),
    ),
    priority=40,
)
