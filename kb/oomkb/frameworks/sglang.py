"""SGLang: defaults of server_args.py, before 0.5 and up to 0.5.23."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework, has, one_of
from oomkb.frameworks.serving import COMMON, card_gib
from oomkb.memory.engines import static_share
from oomkb.memory.job import Job
from oomkb.units import GIB

_ARGS = "SGLang 0.5.23 arg_groups/memory_hook.py"


def _chunk(job: Job) -> int:
    """``chunked_prefill_size`` where nobody states one."""
    size = card_gib(job) or 80
    return 2048 if size < 20 else 4096 if size < 60 else 8192 if size < 160 else 16384


def _share(job: Job) -> float:
    """``mem_fraction_static`` where nobody states one."""
    chunk = job.get("serving.max_num_batched_tokens") or _chunk(job)
    return static_share((card_gib(job) or 80) * GIB, chunk, tp=job.tp or 1, pp=job.pp or 1)


FRAMEWORK = Framework(
    name="sglang",
    title="SGLang",
    kind="serving",
    package="sglang",
    aliases=("sglang.launch_server", "sgl"),
    defaults=(
        *COMMON,
        Default(
            "serving.gpu_memory_utilization",
            0.88,
            "mem_fraction_static before it was computed from the GPU",
            _ARGS,
            "<0.5",
        ),
        Default("serving.max_num_batched_tokens", _chunk, "chunked_prefill_size by the card's memory", _ARGS),
        Default(
            "serving.gpu_memory_utilization", _share, "mem_fraction_static, computed from the card and the chunk", _ARGS
        ),
        Default("serving.kv_dtype", "auto", "kv_cache_dtype auto is the model's dtype", _ARGS),
        Default("serving.cuda_graphs", True, "CUDA graphs are captured unless disabled", _ARGS),
    ),
    settings=(
        *has("model param_dtype quant tp dp ep world gpus nodes serving.gpu_memory_utilization"),
        *has("serving.max_model_len"),
        *has("serving.max_num_seqs serving.max_num_batched_tokens serving.kv_dtype serving.cuda_graphs"),
        one_of("offload", ("param",)),
    ),
)
