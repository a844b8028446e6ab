"""xtuner: defaults of its training configurations, 0.1.23."""

from __future__ import annotations

from oomkb.frameworks.circumstances import lora, zero
from oomkb.frameworks.model import Default, Framework, has, one_of

_CONFIGS = "xtuner configs 0.1.23"

FRAMEWORK = Framework(
    name="xtuner",
    title="xtuner",
    kind="training",
    package="xtuner",
    aliases=("internlm xtuner",),
    defaults=(
        Default("micro_batch", 1, "batch_size is 1 in the shipped configs", _CONFIGS),
        Default("grad_accum", 16, "accumulative_counts is 16 in the shipped configs", _CONFIGS),
        Default("seq_len", 2048, "max_length is 2048 in the shipped configs", _CONFIGS),
        Default("packing", True, "pack_to_max_length is True in the shipped configs", _CONFIGS),
        Default("grad_ckpt", True, "use_activation_checkpointing is True", "xtuner model/sft.py 0.1.23"),
        Default("param_dtype", "fp16", "DeepSpeed holds 16-bit parameters beside an fp32 master", _CONFIGS, when=zero),
        Default("param_dtype", "fp16", "the shipped configs load fp16", _CONFIGS),
        Default("autocast", "fp16", "AmpOptimWrapper in fp16", _CONFIGS),
        Default("attention", "flash2", "attention is dispatched to flash attention", _CONFIGS),
        Default("optimizer", "adamw", "torch AdamW", _CONFIGS),
        Default("fused_ce", False, "the model's own loss", _CONFIGS),
        Default("lora.r", 64, "r is 64 in the shipped configs", _CONFIGS, when=lora),
        Default("lora.targets", "all-linear", "every linear layer", "xtuner model/utils.py 0.1.23", when=lora),
        Default("lora.dtype", "fp32", "PEFT holds adapters in fp32", "peft PR 1706", when=lora),
    ),
    settings=(
        *has("model micro_batch grad_accum seq_len packing param_dtype autocast lora.r lora.dropout sp"),
        *has("world gpus nodes"),
        one_of("grad_ckpt", (True, False)),
        one_of("attention", ("flash2", "sdpa", "eager")),
        one_of("sharding", ("none", "ddp", "zero1", "zero2", "zero3", "fsdp2")),
        one_of("offload", ("optimizer", "param")),
        one_of("method", ("full", "lora", "qlora")),
        one_of("quant", ("none", "nf4", "nf4-double")),
        one_of("optimizer", ("adamw", "adamw_8bit", "paged_adamw_8bit", "paged_adamw")),
    ),
)
