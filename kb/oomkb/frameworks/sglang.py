"""SGLang: defaults of server_args.py, before 0.5 and up to 0.5.23."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework, has, one_of
from oomkb.frameworks.serving import COMMON

_ARGS = "SGLang server_args.py 0.5.23"

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
        Default(
            "serving.gpu_memory_utilization", 0.85, "mem_fraction_static is computed; about this on common GPUs", _ARGS
        ),
        Default(
            "serving.max_num_batched_tokens",
            8192,
            "chunked_prefill_size on GPUs of 60 GiB or more",
            _ARGS,
            when=lambda j: (j.capacity_gib or 80) >= 60,
        ),
        Default("serving.max_num_batched_tokens", 2048, "chunked_prefill_size on smaller GPUs", _ARGS),
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
