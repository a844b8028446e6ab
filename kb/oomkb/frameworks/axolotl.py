"""axolotl: the defaults of its YAML schema (0.18.0), with what changed since 0.4."""

from __future__ import annotations

from oomkb.frameworks.circumstances import engine_dtype, full, lora, preference, quantised, zero
from oomkb.frameworks.model import Default, Framework, has, one_of

_SCHEMA = "axolotl utils/schemas 0.18.0"

FRAMEWORK = Framework(
    name="axolotl",
    title="axolotl",
    kind="training",
    package="axolotl",
    aliases=("axolotl-ai", "axolotl.cli.train"),
    base="transformers",
    defaults=(
        Default("method", "qlora", "load_in_4bit with adapters", _SCHEMA, when=quantised),
        Default("method", "full", "no adapter is set", _SCHEMA, when=lambda j: j.lora is None),
        Default("micro_batch", 1, "micro_batch_size is 1", _SCHEMA),
        Default("eval_micro_batch", lambda j: j.micro_batch or 1, "eval_batch_size follows micro_batch_size", _SCHEMA),
        Default("seq_len", 512, "sequence_len is 512", _SCHEMA),
        Default("packing", False, "sample_packing is off unless set", _SCHEMA),
        Default("grad_ckpt", False, "gradient_checkpointing is off unless set", _SCHEMA),
        Default(
            "param_dtype", engine_dtype, "DeepSpeed holds 16-bit parameters beside an fp32 master", _SCHEMA, when=zero
        ),
        Default("param_dtype", "bf16", "bf16 auto loads the model in bf16 without an fp32 master", _SCHEMA),
        Default("autocast", "bf16", "bf16 is auto", _SCHEMA),
        Default("optimizer", "adamw", "adamw_torch_fused", _SCHEMA),
        Default("optimizer_impl", "fused", "adamw_torch_fused", _SCHEMA),
        Default("lora.dropout", 0.0, "lora_dropout is 0", _SCHEMA, when=lora),
        Default("lora.r", 8, "PEFT's rank", "peft tuners/lora/config.py", when=lora),
        Default(
            "extra_models",
            [{"role": "reference"}],
            "full-parameter DPO loads a second copy",
            _SCHEMA,
            when=lambda j: preference(j) and full(j),
        ),
    ),
    settings=(
        *has("packing lora.dropout tp cp sp"),
        one_of("grad_ckpt", (True, False, "offload")),
        one_of("fused_ce", (True, False), ">=0.4.1"),
        one_of("attention", ("flash2", "sdpa", "xformers", "eager", "flex")),
        one_of("offload", ("optimizer", "param", "activations")),
        one_of("optimizer", ("muon",), ">=0.8"),
    ),
)
