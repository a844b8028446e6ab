"""NVIDIA NeMo: 1.0 YAML and 2.0 recipes over Megatron core."""

from __future__ import annotations

from oomkb.frameworks.circumstances import full, lora
from oomkb.frameworks.model import Default, Framework, has, one_of

_RECIPES = "NeMo collections/llm/recipes 2.4.0"

FRAMEWORK = Framework(
    name="nemo",
    title="NeMo",
    kind="training",
    package="nemo-toolkit",
    aliases=("nvidia nemo", "nemo_toolkit", "nemo-toolkit", "nemo-rl", "nemo rl", "nemo-aligner", "megatron-bridge"),
    base="megatron",
    defaults=(
        Default("objective", "pretrain", "without data of instructions", _RECIPES),
        Default("method", "lora", "a peft block is given", _RECIPES, when=lambda j: j.lora is not None),
        Default("micro_batch", 1, "the recipes set micro_batch_size 1", _RECIPES),
        Default(
            "seq_len", 2048, "the recipes set 2048 for fine-tuning", _RECIPES, when=lambda j: j.objective != "pretrain"
        ),
        Default("seq_len", 8192, "the recipes set 8192 for pre-training", _RECIPES),
        Default(
            "sharding",
            "distributed-optimizer",
            "distributed fused Adam shards states over data parallel ranks",
            _RECIPES,
            when=full,
        ),
        Default("param_dtype", "bf16", "bf16-mixed holds bf16 parameters and fp32 masters", _RECIPES),
        Default("grad_ckpt", False, "no recomputation by default", _RECIPES),
        Default("lora.r", 32, "the LoRA class has dim 32", _RECIPES, when=lora),
    ),
    settings=(
        *has("model lora.r lora.targets lora.dropout"),
        one_of("method", ("full", "lora")),
    ),
)
