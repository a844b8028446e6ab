"""TRL: defaults of its trainer configurations, 0.7.11 to 1.9.0, and when each changed."""

from __future__ import annotations

from oomkb.frameworks.circumstances import full, lora, preference, quantised, rl
from oomkb.frameworks.model import Default, Framework, has, one_of

_DIFF = "TRL 0.7.11 to 1.9.0, configs compared field by field"

FRAMEWORK = Framework(
    name="trl",
    title="TRL",
    kind="training",
    package="trl",
    aliases=("hf trl", "transformer reinforcement learning", "sfttrainer", "trl sft"),
    base="transformers",
    defaults=(
        Default("grad_ckpt", False, "gradient checkpointing followed the Trainer before 0.22", _DIFF, "<0.22"),
        Default("grad_ckpt", True, "gradient checkpointing is on since 0.22", _DIFF, ">=0.22"),
        Default(
            "autocast",
            "bf16",
            "bf16 is on since 0.19 unless fp16 is set",
            _DIFF,
            ">=0.19",
            when=lambda j: not (j.sharding or "").startswith("zero"),
        ),
        Default(
            "param_dtype",
            "fp32",
            "a model given by name is loaded in float32 since 0.27",
            _DIFF,
            ">=0.27",
            when=lambda j: not (j.sharding or "").startswith("zero") and not quantised(j),
        ),
        Default("seq_len", 1024, "max_length is 1024", _DIFF, when=lambda j: not rl(j)),
        Default("completion_len", 256, "max_completion_length is 256", _DIFF, when=rl),
        Default("prompt_len", 512, "max_prompt_length is 512", _DIFF, when=rl),
        Default("generations", 8, "num_generations is 8", _DIFF, when=rl),
        Default(
            "fused_ce", True, "loss_type is chunked_nll since 1.7", _DIFF, ">=1.7", when=lambda j: j.objective == "sft"
        ),
        Default(
            "lora.dtype",
            "bf16",
            "adapters on a quantised base are cast to bf16 since 0.26",
            _DIFF,
            ">=0.26",
            when=lambda j: lora(j) and quantised(j),
        ),
        Default("lora.r", 16, "ModelConfig's lora_r is 16", "TRL ModelConfig 1.9.0", when=lora),
        Default(
            "extra_models",
            [{"role": "reference"}],
            "without adapters a second copy is the reference",
            _DIFF,
            when=lambda j: preference(j) and full(j),
        ),
        Default(
            "extra_models",
            [],
            "beta is 0 since 0.19: no reference model",
            _DIFF,
            ">=0.19",
            when=lambda j: j.objective == "grpo",
        ),
        Default(
            "rollout.gpu_memory_utilization",
            0.3,
            "vllm_gpu_memory_utilization is 0.3 since 0.18",
            _DIFF,
            ">=0.18",
            when=lambda j: rl(j) and j.rollout is not None,
        ),
        Default(
            "rollout.colocated",
            True,
            "vllm_mode is colocate since 1.0",
            _DIFF,
            ">=1.0",
            when=lambda j: rl(j) and j.rollout is not None,
        ),
        Default(
            "rollout.sleep",
            False,
            "vllm_enable_sleep_mode is off unless set",
            _DIFF,
            when=lambda j: rl(j) and j.rollout is not None,
        ),
    ),
    settings=(
        *has("packing prompt_len completion_len generations rollout.gpu_memory_utilization"),
        *has("rollout.tensor_parallel"),
        *has("rollout.colocated", ">=0.18"),
        *has("rollout.sleep", ">=0.23"),
        one_of("offload", ("activations",), ">=0.18"),
    ),
)
