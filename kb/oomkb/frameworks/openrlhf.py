"""OpenRLHF: DeepSpeed with a configuration made in code, vLLM for rollouts."""

from __future__ import annotations

from oomkb.frameworks.circumstances import full, lora, rl
from oomkb.frameworks.model import Default, Framework, has, one_of
from oomkb.memory.job import Job

_CLI = "OpenRLHF openrlhf/cli 0.11.0"
_OLD = "OpenRLHF openrlhf/cli 0.8.11"


def _ppo_models(job: Job) -> list[dict[str, str]]:
    roles = ["reference", "reward", "critic"] if job.objective == "ppo" else ["reference"]
    return [{"role": r} for r in roles]


FRAMEWORK = Framework(
    name="openrlhf",
    title="OpenRLHF",
    kind="rl",
    package="openrlhf",
    aliases=("open rlhf", "openrlhf.cli", "open-rlhf"),
    defaults=(
        Default(
            "method",
            lambda j: "qlora" if j.quant not in (None, "none") else "lora",
            "lora_rank is set",
            _CLI,
            when=lambda j: j.lora is not None and (j.lora.r or 0) > 0,
        ),
        Default("method", "full", "lora_rank is 0 unless set", _CLI),
        Default("micro_batch", 4, "micro_train_batch_size is 4 for PPO", _OLD, "<0.10", when=rl),
        Default("micro_batch", 1, "train.micro_batch_size is 1 for PPO", _CLI, when=rl),
        Default("micro_batch", 8, "micro_train_batch_size is 8 for SFT and DPO", _CLI),
        Default("seq_len", 512, "max_len is 512 for DPO", _CLI, when=lambda j: j.objective in ("dpo", "kto", "rm")),
        Default("seq_len", 2048, "max_len is 2048", _CLI),
        Default("sharding", "zero2", "zero_stage is 2 unless set", _CLI),
        Default("param_dtype", "fp32", "without --bf16 parameters stay in fp32", _OLD, "<0.10"),
        Default("param_dtype", "bf16", "ds.param_dtype is bf16", _CLI),
        Default("autocast", "none", "DeepSpeed's engine computes in the parameters' dtype", _CLI),
        Default("grad_ckpt", False, "gradient_checkpointing is off unless given", _CLI),
        Default("attention", "eager", "flash_attn was off by default up to 0.8.9", _OLD, "<0.8.10"),
        Default("attention", "flash2", "attn_implementation is flash_attention_2", _CLI),
        Default("optimizer", "adamw", "DeepSpeed's fused Adam", _CLI),
        Default("fused_ce", False, "use_liger_kernel is off unless given", _CLI),
        Default("lora.targets", "all-linear", "target_modules is all-linear", _CLI, when=lora),
        Default(
            "extra_models",
            [{"role": "reference"}],
            "a reference model is loaded",
            _CLI,
            when=lambda j: j.objective in ("dpo", "kto") and full(j),
        ),
        Default("extra_models", _ppo_models, "PPO loads reference, reward and critic beside the actor", _CLI, when=rl),
        Default("rollout.engine", "vllm", "rollouts run on vLLM", _CLI, when=rl),
        Default(
            "rollout.gpu_memory_utilization", 0.95, "vllm_gpu_memory_utilization is 0.95 unless set", _CLI, when=rl
        ),
        Default("rollout.tensor_parallel", 1, "vllm_tensor_parallel_size is 1", _CLI, when=rl),
        Default("rollout.sleep", False, "vllm_enable_sleep is off unless given", _CLI, when=rl),
        Default("rollout.colocated", False, "engines get GPUs of their own unless colocated", _CLI, when=rl),
    ),
    settings=(
        *has("model micro_batch grad_accum seq_len packing param_dtype lora.r lora.targets lora.dropout"),
        *has("world gpus nodes"),
        *has("prompt_len completion_len generations tp sp rollout.gpu_memory_utilization"),
        *has("rollout.tensor_parallel"),
        *has("rollout.colocated rollout.sleep"),
        one_of("grad_ckpt", (True, False)),
        one_of("attention", ("eager", "sdpa", "flash2")),
        one_of("fused_ce", (True, False)),
        one_of("sharding", ("ddp", "zero1", "zero2", "zero3")),
        one_of("offload", ("optimizer",)),
        one_of("method", ("full", "lora", "qlora")),
        one_of("quant", ("none", "nf4")),
        one_of("optimizer", ("adamw",)),
    ),
)
