"""The CUDA driver and runtime, cuBLAS, cuDNN and NCCL when they cannot get memory, and their look-alikes."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "cuda_driver",
    (
        "out of memory",
        "alloc_failed",
        "error_out_of_memory",
        "cuda error 2",
        "exceed allowed memory",
        "not enough memory on device",
        "preemptively rejected",
        "not_initialized",
        "memory allocation failed with oom",
        "cumemcreate",
        "memory allocation failure",
        "buffer of size",
        "memory on gpu",
    ),
    (
        rule(
            "paddle-oom",
            rf"Cannot allocate {size('requested')} memory on GPU (?P<device__i>\d{{1,3}}), (?:{size('allocated')}"
            rf" memory has been allocated and )?available memory is only {size('free')}",
            "device",
        ),
        rule("torch-thc-oom", r"cuda runtime error \(2\) ?: ?out of memory", "device"),
        rule("ctranslate2-oom", r"CUDA failed with error out of memory", "device"),
        rule("onnxruntime-oom", r"requested buffer of size (?P<requested__n>\d{1,15})\b", "device"),
        rule(
            "torch-fraction-limit",
            rf"preemptively rejected because it would exceed per_process_memory_fraction.{{0,80}}?"
            rf"{size('requested')}",
            "device",
        ),
        rule(
            "torch-cuda-oom-warning",
            r"memory allocation failed with OOM on device (?P<device__i>\d{1,4}) while trying to all"
            r"ocate (?P<requested__n>\d{1,15}) bytes \(free: (?P<free__n>\d{1,15}), total: (?P<capac"
            r"ity__n>\d{1,15})\)",
            "device",
            lines=1,
        ),
        rule(
            "nccl-cuda-oom",
            r"NCCL WARN.{0,40}(?:Cuda failure (?:2 )?'?out of memory|Failed to CUDA (?:m"
            r"|c)alloc)|ncclUnhandledCudaError.{0,200}out of memory|ncclUnhandledCudaError: ?Cuda fa"
            r"ilure 2",
            "device",
        ),
        rule("cublas-alloc-failed", r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)", "device"),
        rule(
            "cudnn-alloc-failed",
            r"CUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)"
            r"|CUDNN_STATUS_NOT_INITIALIZED",
            "device",
        ),
        rule(
            "cumem-oom",
            r"(?:CUDA Error: out of memory at .{0,80}cumem|cumem_allocator.{0,120}out of memory"
            r"|cuMemCreate.{0,80}(?:out of memory|failed)|torch_memory_saver.{0,120}(?:out of memory"
            r"|cuMemCreate))",
            "device",
        ),
        rule(
            "async-allocator-oom",
            rf"would exceed allowed memory.{{0,60}}Currently allocated\s*:\s*{size('allocated')}\s*Requested\s*:\s*"
            rf"{size('requested')}\s*Device limit\s*:\s*{size('capacity')}"
            rf"(?:\s*Free \(according to CUDA\):\s*{size('free')})?",
            "device",
            lines=4,
        ),
        rule(
            "async-allocator-oom",
            r"Allocation on device.{0,60}would exceed allowed memory|cudaMallocAsync.{0,120}out "
            r"of memory",
            "device",
        ),
        rule(
            "cuda-driver-oom",
            r"CUDA (?:driver |runtime )?error(?: \d{1,4})?(?: at [\w./\-]{1,80}:\d{1,6})?\s?(?:in \S"
            r"{1,80})?[:：]? ?(?:\(\d\) )?out of memory|CUDA_ERROR_OUT_OF_MEMORY"
            r"|cudaErrorMemoryAllocation|CUDA error 2 at|cudaMalloc failed: out of memory"
            r"|hipErrorOutOfMemory|CUDA error: memory allocation failure",
            "device",
        ),
    ),
    priority=30,
)
