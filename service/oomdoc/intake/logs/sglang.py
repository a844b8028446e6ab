"""SGLang: memory pool errors, retractions, graph capture."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

_START: Final = "engine-init"

PARSER: Final[Parser] = rules_parser(
    "sglang",
    (
        "mem-fraction-static",
        "mem_fraction_static",
        "try to lower your batch size",
        "alloc_req_slots",
        "kv cache pool is full",
        "memory capacity is unbalanced",
        "capture cuda graph failed",
        "kv memory budget",
        "retract",
    ),
    (
        rule(
            "sglang-memory-pool-too-small",
            r"Not enough memory\.? Please try (?:to )?increas\w{1,3} --mem-fraction-static(?:.{0,40}"
            r"Current value: .{0,40}?(?P<fraction__f>0\.\d{1,6}))?",
            "device",
            phase=_START,
            facts={"fraction": "gpu_memory_utilization"},
        ),
        rule(
            "sglang-weights-leave-nothing",
            r"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=(?P<fr"
            r"action__f>0\.\d{1,6})",
            "device",
            phase=_START,
            facts={"fraction": "gpu_memory_utilization"},
        ),
        rule(
            "sglang-batch-oom",
            r"(?P<stage>Prefill|Decode) out of memory\. Try to lower your batch size",
            "device",
            phase="generate",
        ),
        rule("sglang-batch-oom", r"out of memory\. Try to lower your batch size", "device", phase="generate"),
        rule("sglang-slots", r"alloc_req_slots runs out of memory", "device", phase="generate"),
        rule("sglang-unbalanced", r"The memory capacity is unbalanced", "device", phase=_START),
        rule(  # the wrapper of any error: another one named behind it is no lack of memory
            "sglang-graph-capture",
            r"Capture cuda graph failed(?!.{0,200}(?:timed out|during CUDA graph capture|not permitted))",
            "device",
            phase=_START,
        ),
        rule(
            "sglang-prompt-too-long",
            r"Request prompt exceeds the KV memory budget: input_len=(?P<length__i>\d{1,9})",
            "device",
            phase="generate",
        ),
        rule("sglang-retract", r"KV cache pool is full\. Retract requests"),
        rule(
            "sglang-pool",
            r"mem_fraction_static=(?P<fraction__f>0\.\d{1,6})",
            None,
            facts={"fraction": "gpu_memory_utilization"},
            confidence=0.8,
        ),
    ),
    priority=11,
)
