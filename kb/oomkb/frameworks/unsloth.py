"""unsloth: what FastLanguageModel loads and patches unless told otherwise."""

from __future__ import annotations

from oomkb.frameworks.circumstances import full, lora, rl
from oomkb.frameworks.model import Default, Framework, has, one_of

_LOADER = "unsloth models/loader.py, 2026-08"
_RL = "unsloth models/rl.py, 2026-08"

FRAMEWORK = Framework(
    name="unsloth",
    title="unsloth",
    kind="training",
    package="unsloth",
    aliases=("fastlanguagemodel", "unsloth-zoo"),
    base="trl",
    defaults=(
        Default(
            "method",
            "qlora",
            "load_in_4bit is True unless set",
            _LOADER,
            when=lambda j: j.quant in (None, "nf4", "nf4-double"),
        ),
        Default("method", "lora", "get_peft_model adds adapters", _LOADER),
        Default("quant", "nf4-double", "load_in_4bit is True unless set", _LOADER, when=lambda j: j.method == "qlora"),
        Default("micro_batch", 4, "per_device_train_batch_size becomes 4", _RL),
        Default("grad_accum", 2, "gradient_accumulation_steps becomes 2", _RL),
        Default("eval_micro_batch", 4, "per_device_eval_batch_size becomes 4", _RL),
        Default("seq_len", 2048, "max_seq_length is 2048", _LOADER),
        Default(
            "grad_ckpt",
            "offload",
            'use_gradient_checkpointing is "unsloth": inputs of layers go to pinned host memory',
            _LOADER,
        ),
        Default("param_dtype", "bf16", "dtype None takes bf16 where the GPU has it", _LOADER),
        Default("autocast", "bf16", "mixed precision over the loaded dtype", _LOADER),
        Default("attention", "flash2", "flash attention or an equal kernel", _LOADER),
        Default("optimizer", "adamw_8bit", "optim becomes adamw_8bit", _RL),
        Default("fused_ce", True, "the loss is computed in chunks", "unsloth_zoo fused_losses/cross_entropy_loss.py"),
        Default("lora.r", 16, "get_peft_model's r is 16", _LOADER, when=lora),
        Default("lora.targets", "all-linear", "all seven projections", _LOADER, when=lora),
        Default("lora.dtype", "fp32", "adapters are held in fp32", "unsloth_zoo training_utils.py", when=lora),
        Default("sharding", "none", "one process", _LOADER, when=full),
        Default(
            "rollout.gpu_memory_utilization",
            0.5,
            "gpu_memory_utilization is 0.5",
            _LOADER,
            when=lambda j: rl(j) and j.rollout is not None,
        ),
    ),
    settings=(
        one_of("grad_ckpt", (True, False, "offload")),
        one_of("sharding", ("none", "ddp")),
        one_of("method", ("full", "lora", "qlora")),
        *has("rollout.gpu_memory_utilization"),
    ),
)
