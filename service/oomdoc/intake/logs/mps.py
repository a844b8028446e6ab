"""Apple's Metal: PyTorch's backend, and MLX, whose buffers have a largest size (mlx/backend/metal/allocator.cpp)."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "mps",
    (
        "mps backend out of memory",
        "invalid buffer size",
        "mtlbuffer",
        "insufficient memory (00000008",
        "metal::malloc",
        "kiogpucommandbuffercallbackerroroutofmemory",
    ),
    (
        rule(
            "mps-oom",
            rf"MPS allocated: {size('allocated')}, other allocations: {size('other')}, max allowed: "
            rf"{size('capacity')}\)\.? ?(?:Tried to allocate {size('requested')})?",
            "device",
            lines=2,
        ),
        rule(
            "mps-oom",
            r"MPS backend out of memory|kIOGPUCommandBufferCallbackErrorOutOfMemory"
            r"|Insufficient Memory \(00000008",
            "device",
        ),
        rule("mps-buffer-too-large", rf"Invalid buffer size: {size('requested')}", "device"),
        rule(
            "metal-buffer-too-large",
            r"Attempting to allocate (?P<requested__n>\d{1,15}) bytes which is\s{1,4}greater than the maximum allowed"
            r" buffer size of (?P<allowed__n>\d{1,15})",
            "device",
            lines=1,
        ),
    ),
    priority=5,
)
