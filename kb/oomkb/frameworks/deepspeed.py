"""DeepSpeed with a JSON of its own, without the Trainer's help."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework, has, one_of

_ZERO = "DeepSpeed runtime/zero/config.py 0.19.5"

FRAMEWORK = Framework(
    name="deepspeed",
    title="DeepSpeed",
    kind="launcher",
    package="deepspeed",
    aliases=("ds", "zero", "deepspeed-chat", "deepspeed chat", "dschat"),
    base="transformers",
    defaults=(
        Default("sharding", "ddp", "zero_optimization.stage is 0", _ZERO),
        Default(
            "param_dtype",
            "fp32",
            "neither bf16 nor fp16 is enabled",
            _ZERO,
            when=lambda j: j.autocast in (None, "none"),
        ),
        Default("micro_batch", 1, "train_micro_batch_size_per_gpu is 1 when only accumulation is given", _ZERO),
    ),
    settings=(
        *has("micro_batch grad_accum buckets nvme_offload"),
        one_of("sharding", ("ddp", "zero1", "zero2", "zero3")),
        one_of("offload", ("optimizer", "param")),
    ),
)
