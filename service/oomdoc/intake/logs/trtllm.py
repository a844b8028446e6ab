"""TensorRT-LLM: runtime buffers, KV cache manager, engine building."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "trtllm",
    (
        "tensorrt",
        "tllm",
        "cudamallocasync",
        "free_gpu_memory_fraction",
        "requested amount of gpu memory",
        "executor creation failed",
    ),
    (
        rule(
            "trtllm-oom",
            r"CUDA runtime error in (?:::)?cudaMalloc\w{0,8}.{0,80}out of memory",
            "device",
            phase="engine-init",
        ),
        rule(
            "trtllm-oom",
            r"\[TRT\].{0,80}Requested amount of GPU memory \((?P<requested__n>\d{1,15}) bytes\) "
            r"could not be allocated",
            "device",
            phase="engine-init",
        ),
        rule("trtllm-oom", r"\[TensorRT-LLM\]\[ERROR\].{0,200}out of memory", "device", phase="engine-init"),
        rule(
            "trtllm-oom",
            r"Executor creation failed due to insufficient GPU memory.{1,200}?Total GPU memory \(GiB\): "
            r"(?P<capacity__g>[\d.]{1,9}).{1,80}?\(GiB\): (?P<free__g>[\d.]{1,9})",
            "device",
            phase="engine-init",
            lines=6,
        ),
        rule("trtllm-oom", r"Executor creation failed due to insufficient GPU memory", "device", phase="engine-init"),
        rule(
            "trtllm-kv-cache-too-small",
            r"(?:maxTokens|max_tokens_in_paged_kv_cache|KV cache).{0,120}(?:insufficient"
            r"|not enough|too small)",
            "device",
            phase="engine-init",
        ),
        rule("trtllm-memory", rf"\[MemUsageChange\] (?:Allocated|Init)\S{{0,40}}.{{0,60}}?{size('allocated')}"),
    ),
    priority=23,
)
