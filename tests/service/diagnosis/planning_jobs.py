"""Random jobs of every framework, and what no plan for them may propose: judged apart from the remedies."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from oomdoc.diagnosis.result import Plan
from oomkb.memory.device import Device
from oomkb.memory.job import Job

TRAINERS = [
    *["transformers", "trl", "llama-factory", "ms-swift", "axolotl", "openrlhf", "verl", "torchtune"],
    *["megatron", "nemo", "unsloth", "xtuner", "deepspeed", "accelerate", "fsdp", "somebody-elses-script"],
]
SERVERS = ["vllm", "sglang", "lmdeploy", "tgi", "tensorrt-llm"]
CARDS = [
    *["V100-PCIE-16GB", "T4", "RTX 2080 Ti", "GTX 1080 Ti", "P100", "RTX 3090", "RTX 4090", "A100-40GB"],
    *["A100-80GB", "H100", "L40S", "B200", "MI300X", "MI250X", "Ascend 910B", "M2 Max", "Gaudi 2"],
]
SHARDINGS = {
    "megatron": ["none", "distributed-optimizer"],
    "nemo": ["none", "distributed-optimizer"],
    "verl": ["fsdp", "fsdp2"],
    "torchtune": ["none", "fsdp2"],
    "fsdp": ["fsdp", "shard-grad-op", "hsdp"],
    "unsloth": ["none"],
    "openrlhf": ["zero2", "zero3"],
    "xtuner": ["none", "zero2", "zero3"],
}
SIZES = [(512, 4, 8000), (2048, 16, 32000), (4096, 32, 128256), (8192, 80, 152064)]
WITH_ROLLOUT = ["trl", "ms-swift", "verl", "openrlhf"]
WITH_IMAGES = ["ms-swift", "llama-factory", "transformers"]
NAMED = [
    "mistralai/Mixtral-8x7B-v0.1",
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-2-9b",
    "microsoft/phi-2",
    "bigscience/bloom-7b1",
]
BITSANDBYTES = {
    "adamw_8bit",
    "paged_adamw",
    "paged_adamw_8bit",
    "lion_8bit",
    "paged_lion_8bit",
    "nf4",
    "nf4-double",
    "int8",
}
VERSIONS = [
    {},
    {"torch": "1.13.1", "transformers": "4.31.0", "trl": "0.7.11"},
    {"torch": "2.7.0", "transformers": "4.52.4"},
]


def described(draw: st.DrawFn) -> dict[str, Any]:
    hidden, layers, vocab = draw(st.sampled_from(SIZES))
    return {
        "model_type": draw(st.sampled_from(["llama", "qwen2"])),
        "hidden_size": hidden,
        "intermediate_size": hidden * 7 // 2,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": max(1, hidden // 512),
        "vocab_size": vocab,
    }


@st.composite
def trainings(draw: st.DrawFn) -> dict[str, Any]:
    """Supervised, preference and online training, dense and with experts, on one and several machines."""
    framework = draw(st.sampled_from(TRAINERS))
    card = draw(st.sampled_from(CARDS))
    gpus = 1 if framework == "unsloth" or card == "M2 Max" else draw(st.sampled_from([1, 2, 3, 4, 8]))
    nodes = draw(st.sampled_from([1, 1, 2, 4])) if gpus == 8 else 1
    method = "full" if framework == "megatron" else draw(st.sampled_from(["full", "lora", "qlora"]))
    objectives = [
        "sft",
        "sft",
        "dpo",
        "orpo",
        "kto",
        "rm",
        "pretrain",
        *(["grpo", "ppo"] if framework in WITH_ROLLOUT else []),
    ]
    job: dict[str, Any] = {
        "framework": framework,
        "model": draw(st.sampled_from(NAMED)) if draw(st.booleans()) else described(draw),
        "objective": draw(st.sampled_from(objectives)),
        "method": method,
        "micro_batch": draw(st.integers(1, 16)),
        "grad_accum": draw(st.integers(1, 8)),
        "seq_len": draw(st.sampled_from([512, 2048, 8192, 32768])),
        "autocast": draw(st.sampled_from(["bf16", "fp16", "none"])),
        "gpu": card,
        "gpus": gpus,
        "nodes": nodes,
        "world": gpus * nodes,
        "sharding": draw(st.sampled_from(SHARDINGS.get(framework, ["none", "zero1", "zero3", "fsdp"]))),
        "versions": draw(st.sampled_from(VERSIONS)),
    }
    assume(not (method == "qlora" and job["sharding"] in ("zero3", "fsdp", "fsdp2")))
    assume(not (card == "M2 Max" and job["sharding"] != "none"))
    optional = {
        "grad_ckpt": st.sampled_from([True, False]),
        "attention": st.sampled_from(["eager", "sdpa", "flash2"]),
        "param_dtype": st.sampled_from(["fp32", "bf16"]),
        "optimizer": st.sampled_from(["adamw", "adamw_8bit", "sgd", "adafactor"]),
        "fused_ce": st.booleans(),
        "packing": st.booleans(),
        "host_gib": st.sampled_from([32.0, 512.0]),
    }
    job |= {name: draw(values) for name, values in optional.items() if draw(st.booleans())}
    if job["objective"] in ("grpo", "ppo"):
        job |= online(draw)
        del job["seq_len"]
    elif job["objective"] in ("dpo", "kto") and method == "full" and draw(st.booleans()):
        job["extra_models"] = [{"role": "reference"}]
    if framework in WITH_IMAGES and draw(st.integers(0, 3)) == 0:
        job |= {
            "model": "Qwen/Qwen2.5-VL-7B-Instruct",
            "images": 1,
            "max_pixels": draw(st.sampled_from([401408, 1003520])),
        }
    if framework in ("megatron", "nemo") and gpus == 8:
        job |= {"tp": draw(st.sampled_from([1, 2, 4])), "pp": draw(st.sampled_from([1, 2]))}
    return job


def online(draw: st.DrawFn) -> dict[str, Any]:
    colocated = draw(st.booleans())
    return {
        "prompt_len": draw(st.sampled_from([256, 1024])),
        "completion_len": draw(st.sampled_from([512, 4096])),
        "generations": draw(st.sampled_from([4, 8, 16])),
        "rollout": {
            "engine": "vllm",
            "colocated": colocated,
            "gpu_memory_utilization": draw(st.sampled_from([0.3, 0.6, 0.9])),
        },
    }


@st.composite
def servings(draw: st.DrawFn) -> dict[str, Any]:
    """Inference servers, quantised models among them."""
    job: dict[str, Any] = {
        "framework": draw(st.sampled_from(SERVERS)),
        "model": draw(st.sampled_from(["Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-30B-A3B"])),
        "objective": "inference",
        "gpu": draw(st.sampled_from([c for c in CARDS if c != "M2 Max"])),
        "gpus": draw(st.sampled_from([1, 2, 4, 8])),
        "serving": {
            "gpu_memory_utilization": draw(st.sampled_from([0.5, 0.9, 0.95])),
            "max_model_len": draw(st.sampled_from([2048, 32768, 131072])),
            "max_num_seqs": draw(st.sampled_from([16, 256])),
        },
    }
    if draw(st.booleans()):
        job["quant"] = draw(st.sampled_from(["awq-int4", "gptq-int4", "fp8"]))
    if draw(st.booleans()):
        job["tp"] = job["gpus"]
    return job


def impossible(before: Job, one: Plan, device: Device) -> list[str]:
    """What in a plan the card, the model or the layout rules out."""
    after = one.job
    fields = {name: value for change in one.changes for name, value in change.fields.items()}
    return [
        *_ruled_out_by_card(before.framework, fields, device),
        *_ruled_out_by_layout(after, fields),
        *_ruled_out_by_kind(before, after, fields),
    ]


def _ruled_out_by_card(framework: str | None, fields: dict[str, Any], device: Device) -> list[str]:
    found = [
        f"{v} on {device.name}"
        for v in fields.values()
        if v in ("bf16", "flash2", "flash3", "fp8") and not device.can(str(v))
    ]
    if device.vendor != "nvidia":  # AMD's CDNA and RDNA 3 from bitsandbytes 0.50, without its paged states
        amd = device.vendor == "amd"
        words = [v for v in fields.values() if isinstance(v, str) and v in BITSANDBYTES]
        found += [f"{v} on {device.vendor}" for v in words if not amd or v.startswith("paged")]
    old = device.generation in ("pascal", "maxwell") or device.vendor in ("apple", "google", "intel")
    if fields.get("fused_ce") and old and framework != "torchtune":  # whose chunks are plain PyTorch
        found.append(f"Triton kernels on {device.generation}")
    if device.vendor == "apple" and str(fields.get("sharding", "none")) not in ("none", "ddp"):
        found.append("sharding over Apple's GPUs")
    return found


def _ruled_out_by_layout(after: Job, fields: dict[str, Any]) -> list[str]:
    found = []
    split = (after.tp or 1) * (after.pp or 1) * (after.cp or 1)
    world = after.world or (after.gpus or 1) * (after.nodes or 1)
    if world % split:
        found.append(f"{split} ranks of one replica on {world}")
    if (
        "offload" in fields
        and "param" in fields["offload"]
        and after.sharding not in ("zero3", "fsdp", "fsdp2", "hsdp")
    ):
        found.append(f"parameters offloaded under {after.sharding}")
    if "offload" in fields and "optimizer" in fields["offload"] and after.sharding in (None, "none", "ddp"):
        found.append("the optimizer offloaded without an engine")
    if fields.get("sharding") == "hsdp" and (after.nodes or 1) < 2:
        found.append("HSDP on one machine")
    if str(fields.get("sharding", "none")).startswith(("zero", "fsdp")) and world < 2:
        found.append("sharding over one rank")
    return found


def _ruled_out_by_kind(before: Job, after: Job, fields: dict[str, Any]) -> list[str]:
    found = []
    four_bit = after.quant in ("nf4", "nf4-double", "int8")
    if (
        four_bit
        and after.objective != "inference"
        and after.sharding in ("zero3", "fsdp", "fsdp2")
        and before.sharding != after.sharding
    ):
        found.append(f"{after.quant} under {after.sharding}")
    if after.objective == "pretrain" and after.method in ("lora", "qlora") and before.method not in ("lora", "qlora"):
        found.append("adapters for pretraining")
    if after.objective == "inference":
        found += [
            f"{name} of a server"
            for name in fields
            if name in ("grad_ckpt", "optimizer", "micro_batch", "lora", "method")
        ]
        if fields.get("quant") and before.quant not in (None, "none"):
            found.append("quantised twice")
    elif any(name.startswith("serving.") for name in fields):
        found.append("a server's setting of a training run")
    if before.framework in ("megatron", "nemo") and str(fields.get("sharding", "")).startswith("zero"):
        found.append("DeepSpeed in Megatron")
    if before.framework == "unsloth" and (after.world or 1) > 1 and (before.world or 1) == 1:
        found.append("several GPUs with unsloth")
    if str(after.optimizer) in BITSANDBYTES and after.sharding in ("fsdp", "fsdp2", "hsdp") and "optimizer" in fields:
        found.append("bitsandbytes' optimizer under FSDP")
    return found
