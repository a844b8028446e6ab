"""ms-swift: defaults of its arguments, 2.x (2.6.1) to 4.5.2."""

from __future__ import annotations

from oomkb.frameworks.circumstances import engine_dtype, full, lora, preference, rl, zero
from oomkb.frameworks.model import Default, Framework, has, one_of
from oomkb.memory.job import Job

_ARGS = "ms-swift arguments 4.5.2"


def _accumulation(job: Job) -> int:
    world = job.world or (job.gpus or 1) * (job.nodes or 1)
    return max(1, -(-16 // ((job.micro_batch or 1) * world)))


FRAMEWORK = Framework(
    name="ms-swift",
    title="ms-swift",
    kind="training",
    package="ms-swift",
    aliases=("swift", "ms_swift", "modelscope swift", "ms-swift 1.x", "msswift"),
    base="transformers",
    defaults=(
        Default("method", "lora", "tuner_type is lora unless set", _ARGS),
        Default("micro_batch", 1, "per_device_train_batch_size is 1", _ARGS),
        Default("eval_micro_batch", 1, "per_device_eval_batch_size is 1", _ARGS),
        Default("grad_accum", _accumulation, "as many steps as make a batch of 16 over all ranks", _ARGS),
        Default("seq_len", 2048, "max_length was 2048 in 2.x", "ms-swift 2.6.1", "<3"),
        Default("grad_ckpt", True, "gradient_checkpointing is on unless set to false", _ARGS),
        Default(
            "param_dtype", engine_dtype, "DeepSpeed holds 16-bit parameters beside an fp32 master", _ARGS, when=zero
        ),
        Default("param_dtype", "bf16", "torch_dtype follows config.json; bf16 weights get no fp32 master", _ARGS),
        Default("autocast", "bf16", "bf16 models train under bf16 mixed precision", _ARGS),
        Default("lora.r", 8, "lora_rank is 8 unless set", _ARGS, when=lora),
        Default("lora.targets", "all-linear", "target_modules is all-linear unless set", _ARGS, when=lora),
        Default(
            "extra_models",
            [{"role": "reference"}],
            "full-parameter training loads a second copy as the reference",
            _ARGS,
            when=lambda j: preference(j) and full(j),
        ),
        Default(
            "rollout.gpu_memory_utilization",
            0.9,
            "vllm_gpu_memory_utilization is 0.9 unless set",
            _ARGS,
            when=lambda j: rl(j) and j.rollout is not None,
        ),
    ),
    settings=(
        *has("packing max_pixels sp tp pp cp ep lora.dropout rollout.gpu_memory_utilization"),
        *has("rollout.sleep"),
        *has("rollout.tensor_parallel rollout.colocated generations prompt_len completion_len"),
        one_of("fused_ce", (True, False)),
        one_of("offload", ("optimizer", "param")),
        one_of("method", ("full", "lora", "qlora", "galore", "lisa", "freeze")),
    ),
)
