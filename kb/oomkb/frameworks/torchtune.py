"""torchtune: what its recipes and their configurations (0.6.1) set."""

from __future__ import annotations

from oomkb.frameworks.circumstances import distributed, full, lora
from oomkb.frameworks.model import Default, Framework, has, one_of

_RECIPES = "torchtune recipes/configs 0.6.1"

FRAMEWORK = Framework(
    name="torchtune",
    title="torchtune",
    kind="training",
    package="torchtune",
    aliases=("tune", "torch tune"),
    defaults=(
        Default("micro_batch", 2, "batch_size is 2 in the recipes", _RECIPES),
        Default("grad_accum", 8, "the LoRA recipes accumulate over 8 steps", _RECIPES, when=lora),
        Default("packing", False, "packed is False", _RECIPES),
        Default("grad_ckpt", True, "enable_activation_checkpointing is True in the recipes", _RECIPES),
        Default("sharding", "fsdp2", "the distributed recipes use fully_shard", _RECIPES, when=distributed),
        Default("param_dtype", "bf16", "dtype bf16 holds everything in bf16", _RECIPES),
        Default("autocast", "none", "dtype bf16 holds everything in bf16", _RECIPES),
        Default("attention", "sdpa", "torchtune calls scaled_dot_product_attention", _RECIPES),
        Default("fused_ce", True, "the loss works on chunks of the output since 0.3", _RECIPES, ">=0.3"),
        Default("fused_ce", False, "the plain cross entropy sees every logit at once", _RECIPES, "<0.3"),
        Default(
            "optimizer",
            "paged_adamw_8bit",
            "the single-device full recipes use PagedAdamW8bit",
            _RECIPES,
            when=lambda j: full(j) and not distributed(j),
        ),
        Default("optimizer", "adamw", "the other recipes use AdamW", _RECIPES),
        Default("lora.r", 8, "lora_rank is 8 in the recipes", _RECIPES, when=lora),
        Default("lora.dtype", "bf16", "adapters are held in the run's dtype", _RECIPES, when=lora),
    ),
    settings=(
        *has("model micro_batch grad_accum seq_len packing param_dtype lora.r lora.targets lora.dropout"),
        *has("world gpus tp cp"),
        *has("reshard_after_forward"),
        one_of("grad_ckpt", (True, False, "selective")),
        one_of("offload", ("activations", "param", "optimizer")),
        one_of("sharding", ("none", "fsdp2")),
        one_of("fused_ce", (True, False)),
        one_of("method", ("full", "lora", "qlora")),
        one_of("optimizer", ("adamw", "adamw_8bit", "paged_adamw_8bit", "paged_adamw", "sgd", "adafactor")),
        one_of("compile", (True, False)),
    ),
)
