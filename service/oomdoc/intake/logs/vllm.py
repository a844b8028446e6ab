"""vLLM: start-up profile, cache errors of every wording, engine settings."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

_LEN: Final = {"length": "max_model_len"}
_START: Final = "engine-init"

PARSER: Final[Parser] = rules_parser(
    "vllm",
    (
        "max seq len",
        "cache blocks",
        "gpu_memory_utilization",
        "gpu memory utilization",
        "warming up sampler",
        "warming up pooler",
        "memory profiling",
        "model weights took",
        "model weights take",
        "maximum concurrency",
        "kv cache",
        "max_seq_len=",
        "max_model_len",
        "raise_if_cache_size_invalid",
        "gpu blocks",
        "cuda blocks",
        "sleep mode freed",
        "capturing cudagraphs",
        "capturing cuda graph",
        "capturing the model",
        "not enough gpu memory",
        "graph capturing finished",
        "model loading took",
        "preempted",
        "recompute",
    ),
    (
        rule(
            "vllm-kv-cache-too-small",
            r"max seq len \((?P<length__i>\d{1,9})\) is larger than the maximum number of tokens tha"
            r"t can be stored in KV cache \((?P<stored__i>\d{1,9})\)",
            "device",
            phase=_START,
            facts=_LEN,
            confidence=0.97,
        ),
        rule(
            "vllm-kv-cache-too-small",
            rf"max seq len \((?P<length__i>\d{{1,9}})\),? \(?{size('needed')} (?:of )?KV cache is nee"
            rf"ded, which is larger than the available KV cache memory \({size('available')}\)(?:.{{0"
            rf",120}}estimated maximum model length is (?P<estimate__i>\d{{1,9}}))?",
            "device",
            phase=_START,
            facts=_LEN,
            confidence=0.97,
            lines=2,
        ),
        rule(
            "vllm-no-cache-blocks",
            r"No available memory for the cache blocks|Cannot auto-fit max_model_len",
            "device",
            phase=_START,
        ),
        rule(
            "vllm-startup-free-too-low",
            rf"Free memory on device (?:\S{{0,12}} )?\((?P<free__g>[\d.]{{1,12}})(?: ?GiB)?/(?P<capac"
            rf"ity__n>[\d.]{{1,12}}) ?(?P<capacity__u>GiB)\) on startup is less than desired GPU memo"
            rf"ry utilization \((?P<utilization__f>[\d.]{{1,8}}), {size('desired')}\)",
            "device",
            phase=_START,
            facts={"utilization": "gpu_memory_utilization", "capacity_bytes": "capacity_gib"},
        ),
        rule(
            "vllm-no-cache-blocks",
            r"reserved for KV Cache is -\d|# (?:GPU|CUDA) blocks: 0,|raise_if_cache_size_invalid"
            r"|Available KV cache memory: -\d",
            "device",
            phase=_START,
        ),
        rule("vllm-profiling-changed", r"Error in memory profiling\.", "device", phase=_START),
        rule(
            "vllm-sampler-warmup",
            r"out of memory occurred when warming up (?:sampler|pooler)(?: with (?P<requests__i>\d{1"
            r",6}) dummy requests)?",
            "device",
            phase=_START,
        ),
        rule("vllm-weights-too-large", r"Failed to load model - not enough GPU memory", "device", phase="load"),
        rule(
            "vllm-profile",
            rf"total_gpu_memory \({size('capacity')}\) x gpu_memory_utilization \((?P<utilization__f>"
            rf"[\d.]{{1,6}})\) = {size('budget')}",
            None,
            facts={"capacity_bytes": "capacity_gib", "utilization": "gpu_memory_utilization"},
        ),
        rule(
            "vllm-profile",
            rf"total_gpu_memory={size('capacity')}.{{0,160}}?peak_torch_memory={size('peak')}.{{0,160"
            rf"}}?kv_cache_size={size('kv_cache')} gpu_memory_utilization=(?P<utilization__f>[\d.]{{1"
            rf",6}})",
            None,
            facts={"capacity_bytes": "capacity_gib", "utilization": "gpu_memory_utilization"},
        ),
        rule(
            "vllm-profile",
            rf"model weights take {size('weights')}; non_torch_memory takes {size('non_torch')}; PyTo"
            rf"rch activation peak memory takes {size('activations')}; the rest of the memory reserve"
            rf"d for KV Cache is {size('kv_cache')}",
        ),
        rule("vllm-weights", rf"(?:model weights took|Model loading took|weights took) {size('weights')}"),
        rule("vllm-kv-cache-memory", rf"Available KV cache memory: {size('kv_cache')}"),
        rule(
            "vllm-blocks",
            r"# (?:GPU|cuda) blocks: (?P<gpu_blocks__i>\d{1,9}), # CPU blocks: (?P<cpu_blocks__i>\d{"
            r"1,9})",
        ),
        rule(
            "vllm-concurrency",
            r"Maximum concurrency for (?P<length__i>[\d,]{1,11}) tokens per request: (?P<concurrency"
            r"__f>[\d.]{1,9})",
            None,
            facts=_LEN,
            confidence=0.8,
        ),
        rule("vllm-sleep", rf"Sleep mode freed {size('freed')}.{{0,8}} {size('still_used')} memory is still in use"),
        rule("vllm-graph-capture", r"Capturing (?:the model for )?cuda ?graphs?|Graph capturing finished"),
        rule(
            "vllm-engine-config",
            r"Initializing an? (?:V[01] )?LLM engine.{0,80}config: model='(?P<model>[^']{1,200})'.{0"
            r",400}?max_seq_len=(?P<length__i>\d{1,9})(?:.{0,200}?tensor_parallel_size=(?P<tp__i>\d{"
            r"1,4}))?",
            None,
            facts={"length": "max_model_len", "tp": "tp"},
        ),
        rule("vllm-preempted", r"Sequence group .{0,40} is preempted|preempted by PreemptionMode"),
    ),
    priority=12,
)
