"""llama.cpp, ggml, and Ollama on top of them."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

_REFUSED: Final = (
    rf"allocating {size('requested', 'MiB|MB|GiB')} on device (?P<device__i>\d{{1,3}}): (?:cudaMalloc|hipMalloc) failed"
)
"""What is refused is named by the next line: llama.cpp ``llama-kv-cache.cpp``, ``llama-context.cpp: graph_reserve``."""

PARSER: Final[Parser] = rules_parser(
    "llama_cpp",
    (
        "ggml",
        "llama_model_load",
        "llama_new_context",
        "llama_kv_cache",
        "llama_init",
        "failed to allocate",
        "llama runner",
        "requires more system memory",
        "cudamalloc failed",
        "mem required",
        "offloaded",
        "unable to allocate backend buffer",
        "failed to fit",
        "model params",
        "n_ctx",
        "memory.required.full",
        '"total vram"="0 b"',
        "library=cpu",
    ),
    (
        rule(
            "ggml-cache-refused",
            _REFUSED + r".{0,300}?(?:failed to allocate buffer for kv cache|llama_kv_cache_init\(\) failed)",
            "device",
            phase="engine-init",
            lines=3,
        ),
        rule(
            "ggml-compute-refused",
            _REFUSED + r".{0,300}?(?:gallocr_reserve|graph_reserve|failed to allocate compute (?:pp |tg )?buffers)",
            "device",
            phase="engine-init",
            lines=3,
        ),
        rule(
            "ggml-alloc-failed",
            rf"allocating {size('requested', 'MiB|MB|GiB')} on device (?P<device__i>\d{{1,3}}): (?:cu"
            r"daMalloc|hipMalloc) failed: out of memory",
            "device",
            phase="load",
        ),
        rule(
            "ggml-alloc-failed",
            r"failed to allocate (?P<buffer>\w{1,20}) buffer(?: of size (?P<requested__n>\d{1,15}))?",
            "device",
            phase="load",
            lines=0,
        ),
        rule(
            "ollama-runner-died",
            r"llama runner process (?:has terminated|no longer running)(?:: signal: killed)?",
            "device",
            phase="load",
        ),
        rule(
            "ggml-alloc-failed",
            r"(?:CUDA|HIP|Vulkan|Metal) error.{0,40} at \S{0,80}ggml\S{0,40}: out of memory"
            r"|unable to allocate (?:backend )?(?:CUDA|ROCm|Metal|Vulkan)?\w{0,10} ?buffer"
            r"|ggml_backend_\w{1,40}: failed to allocate|cudaMalloc failed: out of memory",
            "device",
            phase="load",
        ),
        rule(
            "ollama-system-memory",
            rf"model requires more system memory \({size('requested')}\) than is available \("
            rf"{size('free')}\)",
            "host",
            phase="load",
        ),
        rule(  # ollama server/routes.go and discover/types.go, 0.12-0.13
            "ollama-no-gpu",
            r"\"total vram\"=\"0 B\"|msg=\"inference compute\" id=cpu library=cpu",
        ),
        rule(
            "ollama-memory",
            rf"memory\.available=\"?\[{size('available')}[^=]{{0,200}}.{{0,60}}?memory\.required\.full=\"?{size('full')}"
            rf".{{0,80}}?memory\.required\.kv=\"?{size('kv')}",
        ),
        rule(
            "llama-cpp-context-failed",
            r"failed to (?:create|initialize) (?:the )?(?:context|compute buffers)"
            r"|failed to allocate compute buffers|failed to initialize the context",
            "device",
            phase="load",
        ),
        rule(
            "llama-cpp-model",
            r"model size\s{0,12}= ?(?P<params__f>\d{1,4}(?:\.\d{1,2})?) ?B\b",
            None,
            facts={"params": "params_b"},
            confidence=0.8,
        ),
        rule(
            "llama-cpp-params",
            r"model params\s{0,12}= ?(?P<params__f>\d{1,4}(?:\.\d{1,2})?) ?B\b",
            None,
            facts={"params": "params_b"},
            confidence=0.9,
        ),
        rule(
            "llama-cpp-context",
            r"(?:llama_\w{1,40}|llm_\w{1,40}):\s{1,4}n_ctx\s{1,12}= ?(?P<tokens__i>\d{1,9})",
            None,
            facts={"tokens": "max_model_len"},
            confidence=0.8,
        ),
        rule(
            "llama-cpp-buffers",
            rf"(?P<buffer>\w{{1,20}}) (?P<what>model|KV|compute) buffer size = {{1,12}}{size('size')}",
        ),
        rule("llama-cpp-buffers", rf"(?P<what>KV) self size\s{{0,4}}= {{0,12}}{size('size')}"),
        rule("llama-cpp-offloaded", r"offloaded (?P<layers__i>\d{1,4})/(?P<of__i>\d{1,4}) layers to GPU"),
    ),
    priority=26,
)
