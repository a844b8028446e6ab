"""Runs inside the environment of ``bench/peers.py``: traced jobs on standard input, each tool's prices on the output.

Each function translates a job into what one tool understands and returns its peak of allocated memory in GiB without
context and margins. What a tool has no field for is left at the tool's default.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

GIB = 2**30


def fitcheck(job: Mapping[str, Any], measured: Mapping[str, Any]) -> float:
    """fitcheck-llm: total less its overhead; the configuration through its own parser, which refuses what it lacks."""
    from fitcheck import config_parser, estimator
    from fitcheck.gpu_db import GPU_DB

    raw = {"architectures": ["LlamaForCausalLM"], **job["model"]}
    config_parser._reject_unsupported(raw, "job")
    fields = config_parser._parse_fields(raw)
    names = ("hidden_size", "num_layers", "num_attention_heads", "num_kv_heads", "intermediate_size", "vocab_size")
    known = {name: getattr(fields, name) for name in (*names, "head_dim", "tie_word_embeddings")}
    config = config_parser.ModelConfig(name="job", num_params=measured["params"] - _adapters(job, measured), **known)
    lora = job.get("lora") or {}
    full = job["method"] == "full"
    extra = {} if full or isinstance(lora.get("targets"), str) else {"lora_targets": list(lora["targets"])}
    training = estimator.TrainingConfig(
        precision=job["param_dtype"] if full else "bf16",
        optimizer="adamw",
        optimizer_dtype=job["param_dtype"] if full else "fp32",
        batch_size=job["micro_batch"],
        seq_len=job["seq_len"],
        lora_rank=None if full else lora["r"],
        grad_checkpoint=job["grad_ckpt"],
        flash_attn=job["attention"] != "eager",
        **extra,
    )
    report = estimator.estimate(config, training, next(iter(GPU_DB.values())))
    return (report.total_mib - report.overhead_mib) / 1024


def canifinetune(job: Mapping[str, Any], measured: Mapping[str, Any]) -> float:
    """canifinetune: total less its CUDA overhead and safety margin."""
    from canifinetune.estimator.memory import EstimateRequest, estimate

    lora = job.get("lora") or {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(job["model"]), encoding="utf-8")
        request = EstimateRequest(
            model_id=folder,
            method=job["method"],
            seq_len=job["seq_len"],
            micro_batch_size=job["micro_batch"],
            base_dtype=job["param_dtype"],
            lora_rank=lora.get("r", 16),
            lora_target_scope="all_linear" if lora.get("targets") == "all-linear" else "attention",
            optimizer="adamw_torch",
            gradient_checkpointing=job["grad_ckpt"],
            attention_implementation="eager" if job["attention"] == "eager" else "sdpa",
            gpu_vram_gb=80.0,
            use_network=False,
        )
        memory = estimate(request).memory
    return float(memory.total_estimated_gb - memory.cuda_overhead_gb - memory.safety_margin_gb)


def gpu_estimator(job: Mapping[str, Any], measured: Mapping[str, Any]) -> float:
    """gpu-estimator: its total; it knows no adapters."""
    from gpu_estimator.estimator import GPUEstimator

    if job["method"] != "full":
        raise ValueError("no adapters")
    result = GPUEstimator().estimate(
        model_params=measured["params"],
        batch_size=job["micro_batch"],
        sequence_length=job["seq_len"],
        precision=job["param_dtype"],
        optimizer="adamw",
        gradient_checkpointing=job["grad_ckpt"],
    )
    return float(result.total_memory_gb) * 1e9 / GIB


def deepspeed(job: Mapping[str, Any], measured: Mapping[str, Any]) -> float:
    """DeepSpeed's ZeRO-2 estimator on one GPU: model states alone; it knows no adapters."""
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    if job["method"] != "full":
        raise ValueError("no adapters")
    _, gpu_bytes = estimate_zero2_model_states_mem_needs(measured["params"], 1, 1, False, 1.0)
    return float(gpu_bytes) / GIB


def accelerate(job: Mapping[str, Any], measured: Mapping[str, Any]) -> float:
    """``accelerate estimate-memory``: weights, gradients and Adam in the given precision; it knows no adapters."""
    if job["method"] != "full":
        raise ValueError("no adapters")
    from accelerate import init_empty_weights
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes
    from transformers import AutoConfig, AutoModelForCausalLM

    known = {name: value for name, value in job["model"].items() if name not in ("model_type", "name")}
    config = AutoConfig.for_model(job["model"]["model_type"], **known)
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config)
    total, _ = calculate_maximum_sizes(model)
    fp32_bytes = total * 4 // next(model.parameters()).element_size()
    mixed = "float16" if job["autocast"] != "none" else "float32"
    stages = estimate_training_usage(fp32_bytes, mixed)
    peak = max(stages.values())
    return float(peak) * (0.5 if job["param_dtype"] == "bf16" and job["autocast"] == "none" else 1.0) / GIB


def _adapters(job: Mapping[str, Any], measured: Mapping[str, Any]) -> int:
    return 0 if job["method"] == "full" else int(measured["trainable"])


TOOLS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float]] = {
    "fitcheck": fitcheck,
    "canifinetune": canifinetune,
    "gpu-estimator": gpu_estimator,
    "deepspeed": deepspeed,
    "accelerate": accelerate,
}


def main() -> None:
    """Price every job with every tool; what a tool raises is its refusal."""
    for line in sys.stdin:
        row = json.loads(line)
        for name, price in TOOLS.items():
            answer: dict[str, Any] = {"id": row["id"], "tool": name}
            try:
                answer["allocated_gib"] = round(price(row["job"], row["measured"]), 4)
            except Exception as error:  # each tool has its own kinds
                answer["refused"] = f"{type(error).__name__}: {error}".split("\n")[0][:120]
            sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
