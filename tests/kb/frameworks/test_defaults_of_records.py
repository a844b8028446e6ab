"""Defaults as the sources that records name have them, where a general default says otherwise."""

from __future__ import annotations

import pytest

from oomkb.frameworks import complete
from oomkb.memory.job import Job

ROWS = [
    ({"framework": "internvl"}, {"seq_len": 8192, "grad_ckpt": True}),
    ({"framework": "internvl", "versions": {"internvl": "1.5"}}, {"seq_len": 2048, "grad_ckpt": False}),
    ({"framework": "fastchat", "method": "qlora"}, {"lora.r": 8, "lora.targets": ("q_proj", "v_proj")}),
    ({"framework": "qwen-finetune", "method": "qlora"}, {"seq_len": 8192, "lora.r": 64, "lora.alpha": None}),
    ({"framework": "llava", "autocast": "none", "versions": {"transformers": "4.37"}}, {"param_dtype": "fp32"}),
    ({"framework": "llava", "autocast": "bf16"}, {"param_dtype": "bf16", "seq_len": 512}),
    ({"framework": "lmflow", "method": "lora"}, {"lora.r": 8}),
    ({"framework": "torchtitan", "gpus": 8}, {"micro_batch": 8, "seq_len": 2048, "sharding": "fsdp2"}),
    ({"framework": "veomni"}, {"grad_ckpt": True, "packing": True, "fused_ce": True}),
    ({"framework": "oumi"}, {"micro_batch": 8, "grad_ckpt": False}),
    (
        {"framework": "mlx-lm", "model": "mlx-community/Mistral-7B-Instruct-v0.3-4bit"},
        {"method": "qlora", "quant": "nf4", "micro_batch": 4, "grad_ckpt": False, "trained_layers": 16, "lora.r": 8},
    ),
    ({"framework": "mlx-lm", "model": "mistralai/Mistral-7B-v0.1"}, {"method": "lora", "quant": "none"}),
    ({"framework": "vllm", "model": "Qwen/Qwen3-32B-FP8"}, {"objective": "inference", "quant": "fp8"}),
    ({"framework": "trl", "model": "unsloth/Qwen3-14B-bnb-4bit"}, {"quant": "nf4", "method": "qlora"}),
    ({"framework": "unsloth", "model": "unsloth/Qwen3-14B-bnb-4bit", "method": "lora"}, {"quant": "nf4"}),
    ({"framework": "ms-swift", "model": "Qwen/Qwen2.5-7B-AWQ", "method": "lora"}, {"quant": "awq-int4"}),
    ({"framework": "trl", "model": "Qwen/Qwen2.5-7B-GPTQ-Int4", "method": "qlora"}, {"quant": "gptq-int4"}),
    ({"framework": "trl", "model": "unsloth/Qwen3-14B-bnb-4bit", "method": "full"}, {"quant": "none"}),
    ({"framework": "trl", "model": "Qwen/Qwen3-32B-FP8", "method": "lora"}, {"quant": "none"}),
    ({"framework": "llama.cpp", "model": "google/gemma-3-27b-it-qat-q4_0-gguf"}, {"quant": "q4_0"}),
    ({"framework": "sglang", "model": "Qwen/Qwen2.5-7B-Instruct-AWQ"}, {"quant": "awq-int4"}),
    ({"framework": "vllm", "model": "Qwen/Qwen3-32B-FP8", "quant": "none"}, {"quant": "none"}),
    ({"framework": "h2o-llmstudio"}, {"quant": "nf4", "lora.r": 4, "seq_len": 512}),
]


@pytest.mark.parametrize(("stated", "expected"), ROWS, ids=[f"{r[0]['framework']}-{i}" for i, r in enumerate(ROWS)])
def test_a_default_is_that_of_its_source(stated, expected):
    job = complete(Job.from_document(stated))
    assert {name: job.get(name) for name in expected} == expected
