"""vLLM: defaults of its engine arguments, through 0.19 and from 0.20."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework, has, one_of
from oomkb.frameworks.serving import COMMON, card_gib
from oomkb.memory.job import Job

_ARGS = "vLLM engine arguments"


def _large(job: Job) -> bool:
    """Cards of 70 GiB or more that are no A100: the larger defaults of ``EngineArgs.get_batch_defaults``."""
    return (card_gib(job) or 0) >= 70 and "a100" not in (job.gpu or "").lower()


def _prompt(job: Job) -> int:
    """Before 0.8 a prompt was run at once, up to 32k tokens; longer ones in chunks of 2048."""
    length = job.get("serving.max_model_len") or job.seq_len or 4096
    return max(length, 2048) if length <= 32768 else 2048


FRAMEWORK = Framework(
    name="vllm",
    title="vLLM",
    kind="serving",
    package="vllm",
    aliases=("vllm serve", "vllm-openai"),
    defaults=(
        *COMMON,
        Default("serving.gpu_memory_utilization", 0.9, "gpu_memory_utilization was 0.9 through 0.19", _ARGS, "<0.20"),
        Default("serving.gpu_memory_utilization", 0.92, "gpu_memory_utilization is 0.92 since 0.20", _ARGS, ">=0.20"),
        Default("serving.max_num_seqs", 256, "max_num_seqs was 256", _ARGS, "<0.8"),
        Default(
            "serving.max_num_seqs", 1024, "max_num_seqs is 1024 on GPUs of 70 GiB or more", _ARGS, ">=0.8", when=_large
        ),
        Default("serving.max_num_seqs", 256, "max_num_seqs is 256 on smaller GPUs", _ARGS, ">=0.8"),
        Default("serving.max_num_batched_tokens", _prompt, "a whole prompt at once, up to 32k", _ARGS, "<0.8"),
        Default(
            "serving.max_num_batched_tokens",
            8192,
            "the API server's budget on GPUs of 70 GiB or more",
            _ARGS,
            when=_large,
        ),
        Default("serving.max_num_batched_tokens", 2048, "the API server's budget on smaller GPUs", _ARGS),
        Default("serving.kv_dtype", "auto", "kv_cache_dtype auto is the model's dtype", _ARGS),
        Default("serving.cuda_graphs", True, "CUDA graphs are captured unless enforce_eager", _ARGS),
    ),
    settings=(
        *has("model param_dtype quant tp pp world gpus serving.gpu_memory_utilization"),
        *has("serving.max_model_len"),
        *has("serving.max_num_seqs serving.max_num_batched_tokens serving.kv_dtype serving.cuda_graphs"),
        *has("max_pixels images"),
        one_of("offload", ("param",)),
    ),
)
