"""Hugging Face Text Generation Inference."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework, has
from oomkb.frameworks.serving import COMMON

_ARGS = "text-generation-launcher arguments"

FRAMEWORK = Framework(
    name="tgi",
    title="Text Generation Inference",
    kind="serving",
    package="text-generation-server",
    aliases=("text-generation-inference", "text generation inference", "text-generation-launcher"),
    defaults=(
        *COMMON,
        Default("serving.gpu_memory_utilization", 0.9, "the warm-up fills what is free", _ARGS),
        Default("serving.cuda_graphs", True, "CUDA graphs are captured for small batches", _ARGS),
        Default("serving.kv_dtype", "auto", "the model's dtype", _ARGS),
    ),
    settings=(
        *has("model param_dtype quant tp world gpus serving.gpu_memory_utilization serving.max_model_len"),
        *has("serving.max_num_seqs serving.max_num_batched_tokens serving.cuda_graphs serving.kv_dtype"),
    ),
)
