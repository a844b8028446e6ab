"""SGLang: ``python -m sglang.launch_server`` flags and ``sgl.Engine(...)``."""

from __future__ import annotations

from oomdoc.intake.configs.codecs import DTYPE, FRACTION, INT, TEXT
from oomdoc.intake.configs.table import Key, Table, words
from oomdoc.intake.configs.tables.serving import cpu_offload, graphs, model_argument, quantization

__all__ = ["TABLE"]

TABLE = Table(
    name="sglang",
    dashes=True,
    keys=(
        Key("serving.gpu_memory_utilization", ("mem-fraction-static",), FRACTION),
        Key("serving.max_model_len", ("context-length",), INT),
        Key("serving.max_num_seqs", ("max-running-requests",), INT),
        Key("serving.max_num_batched_tokens", ("chunked-prefill-size", "max-prefill-tokens"), INT),
        Key("serving.kv_dtype", ("kv-cache-dtype",), TEXT),
        Key("tp", ("tp-size", "tp", "tensor-parallel-size"), INT),
        Key("dp", ("dp-size", "dp", "data-parallel-size"), INT),
        Key("ep", ("ep-size", "ep", "expert-parallel-size"), INT),
        Key("pp", ("pp-size", "pipeline-parallel-size"), INT),
        Key("nodes", ("nnodes",), INT),
        Key("param_dtype", ("dtype",), DTYPE),
    ),
    groups=(
        model_argument(("model-path", "model_path", "model"), ("serve",)),
        quantization(),
        graphs(("disable-cuda-graph", "disable_cuda_graph")),
        cpu_offload(("cpu_offload_gb",)),
    ),
    neutral=words(
        """
        host port trust_remote_code cuda_graph_max_bs max_total_tokens schedule_conservativeness
        schedule_policy enable_dp_attention attention_backend enable_torch_compile
        disable_radix_cache log_level served_model_name dist_init_addr node_rank random_seed
        stream_interval enable_mixed_chunk reasoning_parser tool_call_parser chat_template
        speculative_algorithm speculative_num_steps speculative_draft_model_path max_prefill_tokens
        enable_metrics load_format tokenizer_path api_key sampling_backend enable_memory_saver
        page_size torch_compile_max_bs enable_p2p_check
        """
    ),
    commands=(r"\bsglang\b", r"\bsgl\.Engine\b", r"lmsysorg/sglang"),
    marks=words(
        """
        mem_fraction_static chunked_prefill_size max_running_requests schedule_conservativeness
        cuda_graph_max_bs disable_cuda_graph enable_dp_attention
        """
    ),
    hints=words("model_path tp context_length kv_cache_dtype"),
)
