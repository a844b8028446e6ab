"""LMDeploy: what its TurboMind and PyTorch engines reserve unless told otherwise."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework, has
from oomkb.frameworks.serving import COMMON

_ARGS = "lmdeploy messages.py"

FRAMEWORK = Framework(
    name="lmdeploy",
    title="LMDeploy",
    kind="serving",
    package="lmdeploy",
    aliases=("turbomind", "lmdeploy serve"),
    defaults=(
        *COMMON,
        Default(
            "serving.gpu_memory_utilization",
            0.8,
            "cache_max_entry_count is 0.8, of the memory left after the weights",
            _ARGS,
        ),
        Default("serving.max_num_seqs", 128, "max_batch_size is 128 on most GPUs", _ARGS),
        Default("serving.max_num_batched_tokens", 8192, "max_prefill_token_num is 8192", _ARGS),
        Default("serving.kv_dtype", "auto", "quant_policy is 0", _ARGS),
        Default("serving.cuda_graphs", False, "the TurboMind engine captures none", _ARGS),
    ),
    settings=(
        *has("model param_dtype quant tp world gpus serving.gpu_memory_utilization serving.max_model_len"),
        *has("serving.max_num_seqs serving.max_num_batched_tokens serving.kv_dtype"),
    ),
)
