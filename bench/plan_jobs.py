"""Random but plausible jobs of every framework, for the planner's measurements. The same seed gives the same jobs."""

from __future__ import annotations

import random
from typing import Any, Final

FRAMEWORKS: Final = (
    *("transformers", "trl", "llama-factory", "ms-swift", "axolotl", "openrlhf", "verl", "torchtune", "megatron"),
    *("nemo", "unsloth", "xtuner", "deepspeed", "accelerate", "fsdp"),
)
SERVERS: Final = ("vllm", "sglang", "lmdeploy", "tgi")
MODELS: Final = (
    *("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-72B"),
    *(
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Llama-3.1-70B",
        "mistralai/Mistral-7B-v0.1",
        "mistralai/Mixtral-8x7B-v0.1",
    ),
    *("meta-llama/Llama-2-13b-hf", "google/gemma-2-9b", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite"),
)
VISION: Final = ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2-VL-2B-Instruct")
GPUS: Final = (
    "V100-PCIE-16GB",
    "V100 32GB",
    "T4",
    "RTX 3090",
    "RTX 4090",
    "A10",
    "A100-40GB",
    "A100-80GB",
    "H100",
    "L40S",
    "MI300X",
    "Ascend 910B",
)
_PAIRED: Final = ("dpo", "dpo", "kto", "orpo", "rm")
_SHARDINGS: Final = {
    "megatron": ("none", "distributed-optimizer"),
    "nemo": ("none", "distributed-optimizer"),
    "verl": ("fsdp", "fsdp2"),
    "torchtune": ("none", "fsdp2"),
    "unsloth": ("none",),
    "openrlhf": ("zero2", "zero3"),
    "fsdp": ("fsdp", "fsdp2", "shard-grad-op"),
    "deepspeed": ("zero1", "zero2", "zero3"),
}


def training_job(rng: random.Random) -> dict[str, Any]:
    framework = rng.choice(FRAMEWORKS)
    rl = framework in ("verl", "openrlhf", "trl", "ms-swift") and rng.random() < 0.3
    preference = framework in ("trl", "llama-factory", "ms-swift", "axolotl", "openrlhf") and rng.random() < 0.3
    gpus = 1 if framework == "unsloth" else rng.choice((1, 2, 4, 7, 8))
    job: dict[str, Any] = {
        "framework": framework,
        "model": rng.choice(MODELS),
        "objective": rng.choice(("grpo", "grpo", "ppo")) if rl else rng.choice(_PAIRED) if preference else "sft",
        "method": rng.choice(("full", "lora", "qlora") if framework not in ("megatron",) else ("full",)),
        "micro_batch": rng.choice((1, 2, 3, 4, 8, 16)),
        "grad_accum": rng.choice((1, 2, 4, 8)),
        "seq_len": rng.choice((512, 1024, 2048, 4096, 8192, 16384)),
        "autocast": rng.choice(("bf16", "fp16", "none")),
        "gpu": rng.choice(GPUS),
        "gpus": gpus,
        "world": gpus,
    }
    if rng.random() < 0.6:
        job["sharding"] = (
            rng.choice(_SHARDINGS.get(framework, ("none", "zero2", "zero3", "fsdp"))) if gpus > 1 else "none"
        )
    if rng.random() < 0.5:
        job["grad_ckpt"] = rng.choice((True, False))
    if rng.random() < 0.3:
        job["attention"] = rng.choice(("eager", "sdpa"))
    if rng.random() < 0.3:
        job["param_dtype"] = rng.choice(("fp32", "bf16"))
    if job["method"] == "qlora":
        job["quant"] = "nf4"
    if job.get("sharding") in ("zero2", "zero3") and rng.random() < 0.3:
        job["offload"] = ["optimizer"]
    if rl:
        job["rollout"] = {"engine": "vllm", "colocated": True, "gpu_memory_utilization": rng.choice((0.3, 0.5, 0.8))}
        job["completion_len"], job["prompt_len"] = rng.choice((512, 1024)), 512
        job.pop("seq_len")
    if job["objective"] == "dpo" and job["method"] == "full" and rng.random() < 0.5:
        job["extra_models"] = [{"role": "reference"}]
    if framework in ("ms-swift", "llama-factory") and not rl and rng.random() < 0.3:
        job |= {"model": rng.choice(VISION), "images": rng.choice((1, 4)), "max_pixels": rng.choice((401408, 1003520))}
    if gpus == 8 and rng.random() < 0.3:
        nodes = rng.choice((2, 4))
        job |= {"nodes": nodes, "world": 8 * nodes}
    if rng.random() < 0.15:
        job["host_gib"] = float(rng.choice((64, 256, 1024)))
    return job


def serving_job(rng: random.Random) -> dict[str, Any]:
    return {
        "framework": rng.choice(SERVERS),
        "model": rng.choice(MODELS),
        "objective": "inference",
        "gpu": rng.choice(GPUS),
        "gpus": rng.choice((1, 2, 4, 8)),
        "serving": {
            "gpu_memory_utilization": rng.choice((0.8, 0.9, 0.95)),
            "max_model_len": rng.choice((4096, 8192, 32768, 131072)),
            "max_num_seqs": rng.choice((16, 64, 256, 1024)),
            "max_num_batched_tokens": rng.choice((2048, 8192, 16384)),
        },
    }


def jobs(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Five training jobs to one of serving."""
    rng = random.Random(seed)
    return [serving_job(rng) if i % 6 == 5 else training_job(rng) for i in range(count)]
