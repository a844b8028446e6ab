"""One file per error family; :data:`PARSERS` is the list of them, in the order of their names."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs import (
    accelerate,
    accelerators,
    bitsandbytes,
    cpu_allocator,
    cuda_driver,
    deepspeed,
    evaluation,
    exit_codes,
    jax_xla,
    kernel_oom,
    kubernetes,
    llama_cpp,
    lmdeploy,
    memory_summary,
    memory_usage,
    mps,
    nvidia_smi,
    progress,
    ray,
    sglang,
    shm,
    slurm,
    tensorflow,
    tgi,
    torch_cuda,
    trtllm,
    vllm,
)
from oomdoc.intake.logs.base import Parser, Reading, Window

__all__ = ["PARSERS", "Parser", "Reading", "Window"]

PARSERS: Final[tuple[Parser, ...]] = (
    accelerate.PARSER,
    accelerators.PARSER,
    bitsandbytes.PARSER,
    cpu_allocator.PARSER,
    cuda_driver.PARSER,
    deepspeed.PARSER,
    evaluation.PARSER,
    exit_codes.PARSER,
    jax_xla.PARSER,
    kernel_oom.PARSER,
    kubernetes.PARSER,
    llama_cpp.PARSER,
    lmdeploy.PARSER,
    memory_summary.PARSER,
    memory_usage.PARSER,
    mps.PARSER,
    nvidia_smi.PARSER,
    progress.PARSER,
    ray.PARSER,
    sglang.PARSER,
    shm.PARSER,
    slurm.PARSER,
    tensorflow.PARSER,
    tgi.PARSER,
    torch_cuda.PARSER,
    trtllm.PARSER,
    vllm.PARSER,
)
