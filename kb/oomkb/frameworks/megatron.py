"""Megatron-LM: defaults of its training arguments, core 0.19.0."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework, has, one_of

_CORE = "Megatron-LM core 0.19.0"

FRAMEWORK = Framework(
    name="megatron",
    title="Megatron-LM",
    kind="training",
    package="megatron-core",
    aliases=("megatron-lm", "megatron core", "megatron-core", "megatron_lm", "mcore"),
    defaults=(
        Default("objective", "pretrain", "pretrain_gpt.py trains from scratch", _CORE),
        Default("method", "full", "every parameter is trained", _CORE),
        Default("packing", True, "samples are cut from one token stream", _CORE),
        Default("grad_ckpt", False, "no recomputation unless --recompute-granularity is given", _CORE),
        Default(
            "sharding", "ddp", "optimizer states are whole on every rank without --use-distributed-optimizer", _CORE
        ),
        Default("param_dtype", "fp32", "neither --bf16 nor --fp16 is given", _CORE),
        Default("autocast", "none", "parameters are held in the compute dtype", _CORE),
        Default("attention", "flash2", "the attention backend is chosen by Transformer Engine", _CORE),
        Default("optimizer", "adamw", "Adam with fp32 states", _CORE),
        Default("fused_ce", False, "--cross-entropy-loss-fusion is off unless given", _CORE),
        Default("tp", 1, "tensor parallelism is off", _CORE),
        Default("pp", 1, "pipeline parallelism is off", _CORE),
        Default("cp", 1, "context parallelism is off", _CORE),
        Default("ep", 1, "expert parallelism is off", _CORE),
    ),
    settings=(
        *has("micro_batch seq_len tp pp cp ep sp world gpus nodes param_dtype"),
        one_of("grad_ckpt", (True, False, "selective")),
        one_of("sharding", ("ddp", "distributed-optimizer", "fsdp")),
        one_of("offload", ("optimizer", "activations")),
        one_of("fused_ce", (True, False)),
        one_of("attention", ("flash2", "eager", "sdpa")),
        one_of("optimizer", ("adamw", "sgd")),
        one_of("method", ("full",)),
    ),
)
