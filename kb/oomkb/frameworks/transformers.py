"""transformers' Trainer: the layer most training frameworks stand on."""

from __future__ import annotations

from oomkb.frameworks.circumstances import engine_dtype, fsdp, full, lora, zero
from oomkb.frameworks.model import HF_OPTIMIZERS, Default, Framework, has, one_of
from oomkb.memory.job import Job

_ARGS = "transformers training_args.py, 4.28 to 5.23"
_LOAD = "transformers modeling_utils.py"


def _mixed(job: Job) -> bool:
    return job.autocast in ("bf16", "fp16")


FRAMEWORK = Framework(
    name="transformers",
    title="transformers Trainer",
    kind="training",
    package="transformers",
    aliases=("hf", "huggingface", "hf trainer", "transformers trainer", "peft", "trainer"),
    defaults=(
        Default("micro_batch", 8, "per_device_train_batch_size is 8 unless set", _ARGS),
        Default("eval_micro_batch", 8, "per_device_eval_batch_size is 8, whatever the training batch", _ARGS),
        Default("grad_ckpt", False, "gradient checkpointing is off unless switched on", _ARGS),
        Default(
            "autocast",
            "none",
            "DeepSpeed's engine computes in the parameters' dtype",
            "accelerate accelerator.py 1.14.0",
            when=zero,
        ),
        Default(
            "param_dtype",
            engine_dtype,
            "DeepSpeed holds 16-bit parameters beside an fp32 master",
            "DeepSpeed 0.19.5",
            when=zero,
        ),
        Default(
            "param_dtype",
            "fp32",
            "FSDP keeps trainable shards in fp32 under mixed precision",
            "accelerate 0.30.0 and later",
            when=lambda j: fsdp(j) and full(j) and _mixed(j),
        ),
        Default("param_dtype", "fp32", "from_pretrained loads fp32 when no dtype is given", f"{_LOAD} 4.x", "<5"),
        Default(
            "param_dtype", "bf16", "from_pretrained takes the checkpoint's dtype, usually bf16", f"{_LOAD} 5.0.0", ">=5"
        ),
        Default("autocast", "none", "neither bf16 nor fp16 is set", _ARGS),
        Default("attention", "eager", "no sdpa by default before 4.36", _LOAD, "<4.36"),
        Default("attention", "sdpa", "sdpa is taken where the model class supports it", _LOAD, ">=4.36"),
        Default("optimizer", "adamw", "optim is a form of AdamW unless set", _ARGS),
        Default("optimizer_impl", "foreach", "adamw_torch uses the foreach step", _ARGS, "<5"),
        Default("optimizer_impl", "fused", "adamw_torch_fused on torch 2.8 and later", _ARGS, ">=5"),
        Default("fused_ce", False, "use_liger_kernel is off unless set", _ARGS),
        Default("lora.r", 8, "LoraConfig's r is 8", "peft tuners/lora/config.py", when=lora),
        Default(
            "lora.dtype", "fp32", "PEFT holds adapters in fp32 (autocast_adapter_dtype)", "peft PR 1706", when=lora
        ),
    ),
    settings=(
        *has("model micro_batch grad_accum seq_len eval_micro_batch param_dtype autocast world gpus"),
        *has("nodes lora.r lora.targets"),
        *has("max_pixels buckets reshard_after_forward"),
        one_of("grad_ckpt", (True, False)),
        one_of("grad_ckpt", ("offload",), ">=5.23"),
        one_of("attention", ("eager",)),
        one_of("attention", ("sdpa", "flash2"), ">=4.36"),
        one_of("attention", ("flash3", "flex"), ">=4.50"),
        one_of("fused_ce", (True, False), ">=4.45"),
        one_of("optimizer", HF_OPTIMIZERS),
        one_of("optimizer_impl", ("fused", "foreach")),
        one_of(
            "sharding",
            ("none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp", "shard-grad-op", "device-map"),
        ),
        one_of("offload", ("optimizer", "param")),
        one_of("offload", ("activations",), ">=5.23"),
        one_of("method", ("full", "lora", "qlora", "galore", "apollo")),
        one_of("quant", ("none", "nf4", "nf4-double", "int8", "gptq-int4", "awq-int4", "fp8")),
        one_of("compile", (True, False)),
    ),
)
