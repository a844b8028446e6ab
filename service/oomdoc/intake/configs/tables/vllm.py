"""vLLM: ``vllm serve`` flags, ``LLM(...)`` keyword arguments, YAML configs."""

from __future__ import annotations

from oomdoc.intake.configs.codecs import DTYPE, FRACTION, INT, TEXT
from oomdoc.intake.configs.table import Key, Table, words
from oomdoc.intake.configs.tables.serving import cpu_offload, graphs, model_argument, quantization

__all__ = ["TABLE"]

TABLE = Table(
    name="vllm",
    dashes=True,
    keys=(
        Key("serving.gpu_memory_utilization", ("gpu-memory-utilization",), FRACTION),
        Key("serving.max_model_len", ("max-model-len",), INT),
        Key("serving.max_num_seqs", ("max-num-seqs",), INT),
        Key("serving.max_num_batched_tokens", ("max-num-batched-tokens",), INT),
        Key("serving.kv_dtype", ("kv-cache-dtype",), TEXT),
        Key("tp", ("tensor-parallel-size", "tp"), INT),
        Key("tp", ("tensor_parallel_size",), INT),
        Key("pp", ("pipeline-parallel-size", "pp"), INT),
        Key("dp", ("data-parallel-size", "dp"), INT),
        Key("param_dtype", ("dtype",), DTYPE),
    ),
    groups=(
        model_argument(("model", "model_tag"), ("serve",)),
        quantization(),
        graphs(("enforce-eager", "enforce_eager")),
        cpu_offload(("cpu_offload_gb", "cpu-offload-gb")),
    ),
    neutral=words(
        """
        host port served_model_name trust_remote_code swap_space block_size enable_prefix_caching
        enable_chunked_prefill tokenizer tokenizer_mode load_format download_dir seed max_logprobs
        revision limit_mm_per_prompt mm_processor_kwargs enable_lora max_loras max_lora_rank
        lora_modules api_key disable_log_requests max_seq_len_to_capture compilation_config
        speculative_config enable_expert_parallel distributed_executor_backend
        enable_auto_tool_choice tool_call_parser reasoning_parser chat_template
        max_parallel_loading_workers num_gpu_blocks_override kv_cache_memory_bytes uvicorn_log_level
        worker_use_ray rope_scaling hf_overrides guided_decoding_backend generation_config
        override_generation_config disable_custom_all_reduce gpus shm_size enable_sleep_mode
        calculate_kv_scales cuda_graph_sizes max_cudagraph_capture_size async_scheduling
        """
    ),
    commands=(r"\bvllm\b", r"\bvllm\.entrypoints\b", r"vllm-openai", r"\bAsyncEngineArgs\b"),
    marks=words(
        """
        gpu_memory_utilization max_model_len max_num_seqs enforce_eager served_model_name
        max_num_batched_tokens kv_cache_dtype swap_space
        """
    ),
    hints=words("tensor_parallel_size quantization dtype trust_remote_code"),
)
