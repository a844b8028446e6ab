"""LLaMA-Factory: defaults of its argument classes and loaders, 0.6 to 0.9.5."""

from __future__ import annotations

from oomkb.frameworks.circumstances import engine_dtype, full, lora, preference, quantised, zero
from oomkb.frameworks.model import Default, Framework, has, one_of

_PARSER = "LLaMA-Factory hparams/parser.py 0.9.5"
_ADAPTER = "LLaMA-Factory model/adapter.py 0.9.5"
_DATA = "LLaMA-Factory hparams/data_args.py"

FRAMEWORK = Framework(
    name="llama-factory",
    title="LLaMA-Factory",
    kind="training",
    package="llamafactory",
    aliases=("llamafactory", "llama factory", "llama_factory", "llamafactory-cli", "llama-efficient-tuning"),
    base="transformers",
    defaults=(
        Default(
            "method", "qlora", "finetuning_type is lora, on a quantised base", "finetuning_args.py", when=quantised
        ),
        Default(
            "method", "lora", "finetuning_type is lora unless set", "LLaMA-Factory hparams/finetuning_args.py 0.9.5"
        ),
        Default("micro_batch", 8, "per_device_train_batch_size is the Trainer's 8; the examples set 1", "0.9.5"),
        Default("seq_len", 1024, "cutoff_len was 1024 up to 0.9.0", _DATA, "<=0.9.0"),
        Default("seq_len", 2048, "cutoff_len is 2048 unless set", _DATA, ">=0.9.1"),
        Default(
            "grad_ckpt",
            True,
            "on by itself; only disable_gradient_checkpointing turns it off",
            "model_utils/checkpointing.py 0.9.5",
        ),
        Default("packing", True, "packing is on for stage: pt", _PARSER, when=lambda j: j.objective == "pretrain"),
        Default(
            "param_dtype", engine_dtype, "DeepSpeed recasts to 16 bits and keeps an fp32 master", _ADAPTER, when=zero
        ),
        Default("param_dtype", "fp32", "trainable weights are raised to fp32 without pure_bf16", _ADAPTER, when=full),
        Default(
            "param_dtype",
            "bf16",
            "the base is loaded in the compute dtype",
            _PARSER,
            when=lambda j: lora(j) and j.autocast != "fp16",
        ),
        Default(
            "param_dtype",
            "fp16",
            "the base is loaded in the compute dtype",
            _PARSER,
            when=lambda j: lora(j) and j.autocast == "fp16",
        ),
        Default("attention", "sdpa", "flash_attn is auto, which takes sdpa", "model_utils/attention.py 0.9.5"),
        Default("lora.r", 8, "lora_rank is 8 unless set", "finetuning_args.py 0.9.5", when=lora),
        Default(
            "lora.targets", "all-linear", "lora_target is all unless set", "finetuning_args.py 0.6 and later", when=lora
        ),
        Default(
            "extra_models",
            [{"role": "reference"}],
            "full-parameter training loads a second copy as the reference",
            "train_utils.py 0.9.5",
            when=lambda j: preference(j) and full(j),
        ),
    ),
    settings=(
        *has("packing max_pixels lora.dropout"),
        one_of("grad_ckpt", (True, False)),
        one_of("grad_ckpt", ("offload",), ">=0.9.0"),
        one_of("fused_ce", (True, False), ">=0.9.0"),
        one_of("attention", ("flash2", "sdpa", "eager"), ">=0.7.0"),
        one_of("attention", ("flash3",), ">=0.9.4"),
        one_of("method", ("full", "lora", "qlora", "freeze", "galore", "apollo", "badam", "oft")),
        one_of("offload", ("optimizer", "param")),
        one_of("quant", ("none", "nf4", "nf4-double", "int8")),
    ),
)
