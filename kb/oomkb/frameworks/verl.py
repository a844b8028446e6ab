"""verl (HybridFlow): defaults of its PPO configuration, before and from 0.7.0."""

from __future__ import annotations

from oomkb.frameworks.circumstances import lora
from oomkb.frameworks.model import Default, Framework, has, one_of

_YAML = "verl trainer/config/_generated_ppo_trainer.yaml 0.7.0"


def _rl(job: object) -> bool:
    return getattr(job, "objective", None) in ("ppo", "grpo", None)


FRAMEWORK = Framework(
    name="verl",
    title="verl",
    kind="rl",
    package="verl",
    aliases=("hybridflow", "verl.trainer"),
    defaults=(
        Default("objective", "ppo", "algorithm.adv_estimator is gae", _YAML),
        Default(
            "method", "lora", "model.lora_rank is set", _YAML, when=lambda j: j.lora is not None and (j.lora.r or 0) > 0
        ),
        Default("method", "full", "model.lora_rank is 0 unless set", _YAML),
        Default("prompt_len", 512, "data.max_prompt_length is 512", _YAML, when=_rl),
        Default("completion_len", 512, "data.max_response_length is 512", _YAML, when=_rl),
        Default(
            "seq_len",
            lambda j: (j.prompt_len or 512) + (j.completion_len or 512),
            "prompt and response together",
            _YAML,
            when=_rl,
        ),
        Default("seq_len", 1024, "data.max_length is 1024 for SFT", "verl trainer/config/sft_trainer.yaml"),
        Default("grad_ckpt", True, "model.enable_gradient_checkpointing is true", _YAML),
        Default("sharding", "fsdp", "actor.strategy is fsdp", _YAML),
        Default(
            "param_dtype",
            "fp32",
            "actor parameters and Adam states are fp32 shards",
            "verl workers/fsdp_workers.py 0.7.0",
        ),
        Default("autocast", "bf16", "FSDP computes in bf16 and reduces in fp32", "verl workers/fsdp_workers.py 0.7.0"),
        Default("attention", "flash2", "models load with flash_attention_2", "verl workers/fsdp_workers.py 0.7.0"),
        Default("packing", True, "use_remove_padding is true", _YAML, ">=0.7"),
        Default("packing", False, "use_remove_padding was false", _YAML, "<0.7"),
        Default("optimizer", "adamw", "torch AdamW", _YAML),
        Default("fused_ce", False, "use_fused_kernels is off unless set", _YAML),
        Default("reshard_after_forward", True, "fsdp_config.reshard_after_forward is true", _YAML),
        Default("lora.targets", "all-linear", "target_modules is all-linear", _YAML, when=lora),
        Default("rollout.engine", "vllm", "the usual rollout", "verl examples", when=_rl),
        Default("rollout.gpu_memory_utilization", 0.5, "rollout.gpu_memory_utilization is 0.5", _YAML, when=_rl),
        Default("rollout.tensor_parallel", 2, "rollout.tensor_model_parallel_size is 2", _YAML, when=_rl),
        Default("rollout.sleep", True, "rollout.free_cache_engine is true", _YAML, when=_rl),
        Default("rollout.colocated", True, "actor, rollout and reference share the GPUs", _YAML, when=_rl),
        Default("generations", 1, "rollout.n is 1", _YAML, when=_rl),
        Default(
            "extra_models",
            [{"role": "critic"}],
            "adv_estimator gae trains a critic",
            _YAML,
            when=lambda j: j.objective == "ppo",
        ),
        Default(
            "extra_models",
            [{"role": "reference", "offload": True}],
            "the reference is sharded with its parameters offloaded",
            "verl main_ppo.py 0.7.0",
            when=lambda j: j.objective == "grpo" and j.method == "full",
        ),
    ),
    settings=(
        *has("model micro_batch seq_len packing param_dtype lora.r lora.targets gpus nodes tp pp cp sp"),
        *has("ep world"),
        *has("prompt_len completion_len generations reshard_after_forward"),
        *has("rollout.engine rollout.gpu_memory_utilization rollout.tensor_parallel rollout.sleep"),
        one_of("grad_ckpt", (True, False)),
        one_of("fused_ce", (True, False)),
        one_of("sharding", ("fsdp", "fsdp2")),
        one_of("offload", ("optimizer", "param", "activations")),
        one_of("method", ("full", "lora")),
    ),
)
